"""`SeededScheduler`: one thread, an order that a seed decides, and waits that always end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest
from support import WATCHDOG, Crew

from dmq_actors import (
    AckResult,
    BlockingInActorError,
    BrokerClosedError,
    BrokerTimeoutError,
    ConcurrentUseError,
    InvalidArgumentError,
    InvalidTypeError,
    Message,
    MessageQueue,
)
from dmq_actors.testing import Faults, ManualClock, SeededScheduler


@pytest.fixture
def scheduler():
    return SeededScheduler(7)


@pytest.fixture
def seeded(clock, scheduler, message_queue_factory):
    mq = message_queue_factory(clock=clock, scheduler=scheduler)
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t", retry_backoff=10.0)
    mq.add_consumer("g", "c")
    return mq


def workload(seed):
    scheduler = SeededScheduler(seed)
    with MessageQueue(scheduler=scheduler, clock=ManualClock()) as mq:
        mq.create_topic("t", 3)
        mq.create_consumer_group("g", "t")
        mq.add_consumer("g", "a")
        mq.add_consumer("g", "b")
        group = mq.group_actor("g")
        polls = [group.poll(name, 10, timeout=5.0) for name in ("a", "b", "c")]
        stored = [mq.coordinator.publish("t", Message(n, key=str(n))) for n in range(5)]
        leaving = mq.coordinator.remove_consumer("g", "a")
        for promise in (*polls, *stored, leaving):
            promise.get()
    return scheduler.trace


def test_it_starts_no_thread(seeded):
    before = threading.active_count()
    seeded.publish("t", Message("m"))
    assert [message.value for message in seeded.poll("g", "c", timeout=5.0)] == ["m"]
    assert threading.active_count() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dmq-")]


def test_the_same_seed_makes_the_same_order_and_others_make_others():
    traces = [tuple(workload(seed)) for seed in range(20)]
    assert [tuple(workload(seed)) for seed in range(20)] == traces
    assert len(set(traces)) > 10


def test_the_same_seed_makes_the_same_order_in_another_process():
    code = "from testing.test_seeded_scheduler import workload; print(*workload(3), sep=';')"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "tests"},
            cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),  # noqa: PTH120
            capture_output=True,
            encoding="utf-8",
            timeout=30,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "1", "random")
    }
    assert printed == {";".join(workload(3))}


def test_the_trace_names_actors_and_messages(seeded, scheduler):
    del scheduler.trace[:]
    seeded.publish("t", Message("m"), partition=1)
    assert scheduler.trace == ["coordinator publish", "partition-t-1 append_one"]


def test_a_step_handles_one_message_of_one_actor(seeded, scheduler):
    scheduler.run_until_idle()
    del scheduler.trace[:]
    for _ in range(3):
        seeded.coordinator.publish("t", Message("m"), partition=0)
    assert scheduler.step()
    assert scheduler.trace == ["coordinator publish"]
    scheduler.run_until_idle()
    assert not scheduler.step()
    assert len(scheduler.trace) == 6


# Time


def test_a_wait_lets_time_pass_until_the_answer_is_there(seeded, clock):
    assert seeded.poll("g", "c", timeout=3_600.0) == []
    assert clock.monotonic() == 3_600.0


def test_a_wait_that_is_answered_lets_no_time_pass(seeded, clock):
    seeded.publish("t", Message("m"))
    seeded.poll("g", "c", timeout=3_600.0)
    assert clock.monotonic() == 0.0


def test_a_backoff_passes_by_itself_while_a_poll_waits(seeded, clock):
    seeded.publish("t", Message("m"))
    [message] = seeded.poll("g", "c")
    assert seeded.acknowledge("g", message, success=False) is AckResult.RETRYING
    assert seeded.poll("g", "c") == []
    [again] = seeded.poll("g", "c", timeout=60.0)
    assert (again.delivery_attempt, clock.monotonic()) == (2, 10.0)


def test_a_time_out_runs_on_the_manual_clock(seeded, clock):
    polled = seeded.group_actor("g").poll("c", 10, timeout=60.0)
    with pytest.raises(BrokerTimeoutError, match="within 5"):
        polled.get(timeout=5.0)
    assert clock.monotonic() == 5.0
    assert polled.get() == []
    assert clock.monotonic() == 60.0


def test_a_wait_for_what_will_never_come_ends_at_once_and_tells_the_seed(seeded, clock):
    polled = seeded.group_actor("g").poll("c", 10, timeout=None)
    with pytest.raises(
        BrokerTimeoutError, match=r"no timer is set \(seed 7; handled last: .*fetch"
    ):
        polled.get()
    assert clock.monotonic() == 0.0
    seeded.publish("t", Message("m"))
    assert [message.value for message in polled.get()] == ["m"]


def test_a_joint_and_a_mapped_promise_are_waited_for_in_the_same_way(seeded):
    publish = seeded.coordinator.publish
    joint = publish("t", Message(1)).join(publish("t", Message(2)))
    assert [message.value for message in joint.map(list).get()] == [1, 2]
    assert len(seeded.publish_many("t", [Message(n) for n in range(10)])) == 10


# The end


def test_close_does_what_was_accepted_and_ends_who_waits(seeded):
    stored = [seeded.coordinator.publish("t", Message(n)) for n in range(10)]
    polled = seeded.group_actor("g").poll("c", 1, timeout=None)
    assert seeded.close().clean
    for promise in (*stored, polled):
        assert promise.done()
    with pytest.raises(BrokerClosedError):
        seeded.publish("t", Message("late"))


def test_close_ends_the_callers_of_dropped_messages():
    faults = Faults()
    mq = MessageQueue(scheduler=SeededScheduler(1), clock=ManualClock(), faults=faults)
    mq.create_topic("t")
    faults.drop("partition-*", "append_one")
    with pytest.raises(BrokerTimeoutError):
        mq.publish("t", Message("m"))
    faults.drop("partition-*", "append_one")
    lost = mq.coordinator.publish("t", Message("m"))
    assert mq.close().clean
    with pytest.raises(BrokerClosedError):
        lost.get()


def test_a_ctrl_c_that_hits_an_actor_reaches_the_test(seeded, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("dmq_actors._core.partition_log.PartitionLog.append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            seeded.publish("t", Message("m"))
    assert seeded.publish("t", Message("m")).offset == 0


# What it refuses


def test_another_thread_is_refused_and_told_what_to_do(seeded):
    refused = []

    def call():
        for attempt in (
            lambda: seeded.publish("t", Message("m")),
            lambda: seeded.coordinator.list_topics(),
            lambda: seeded.close(),
        ):
            with pytest.raises(ConcurrentUseError, match="belongs to the thread that made it") as e:
                attempt()
            refused.append(e)

    with Crew() as crew:
        crew.start(call)
    assert len(refused) == 3
    assert seeded.publish("t", Message("m")).offset == 0


def test_an_event_loop_is_refused(seeded):
    async def wait():
        await seeded.coordinator.list_topics()

    with pytest.raises(ConcurrentUseError, match=r"call \.get\(\)"):
        asyncio.run(wait())


def test_a_callback_in_an_actor_cannot_wait_nor_step(seeded, scheduler):
    seen = []

    def inside(_):
        for attempt in (scheduler.step, seeded.coordinator.list_topics().get):
            try:
                attempt()
            except BlockingInActorError as error:
                seen.append(error)

    seeded.coordinator.publish("t", Message("m")).add_done_callback(inside)
    scheduler.run_until_idle()
    assert len(seen) == 2


def test_it_needs_a_manual_clock(scheduler):
    with pytest.raises(InvalidTypeError, match="clock=ManualClock"):
        MessageQueue(scheduler=scheduler)


def test_it_runs_one_broker(seeded, scheduler, clock):
    assert seeded.list_topics() == ["t"]
    with pytest.raises(InvalidArgumentError, match="another broker"):
        MessageQueue(scheduler=scheduler, clock=clock)


@pytest.mark.parametrize("seed", [None, 1.0, "7", True])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InvalidTypeError, match="seed"):
        SeededScheduler(seed)


def test_a_broker_that_nobody_closed_ends_with_the_process(tmp_path):
    code = (
        "from dmq_actors import *; from dmq_actors.testing import *; import threading\n"
        "def make():\n"
        "    mq = MessageQueue(scheduler=SeededScheduler(1), clock=ManualClock())\n"
        "    mq.create_topic('t'); return mq\n"
        "kept, _ = make(), make()\n"
        "t = threading.Thread(target=make); t.start(); t.join(); print('end')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=WATCHDOG,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
