"""Pitfalls at the edges of the process: Ctrl-C, fork, and memory that only grows."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from textwrap import dedent

import pytest
from support import WATCHDOG

from dmq_actors import Message, events
from dmq_actors._core import traffic

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and fork")


def start_python(script):
    """A child process that cannot hang: SIGALRM ends it, whatever its threads do."""
    preamble = "import signal; hasattr(signal, 'alarm') and signal.alarm(20)\n"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", preamble + dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def logged(caplog, event):
    """The data of every log record of this event."""
    found = [getattr(record, "dmq", {}) for record in caplog.records]
    return [data for data in found if data.get("event") == event]


# P55


@posix
@pytest.mark.parametrize(
    "wait",
    ["mq.poll('g', 'c1', timeout=None)", "mq.group_actor('g').poll('c1', timeout=None).get()"],
    ids=["poll", "promise"],
)
def test_ctrl_c_ends_a_wait_of_the_main_thread_within_a_second(wait):
    """P55, confluent-kafka-python 209 and another: Ctrl-C did nothing while poll waited."""
    script = f"""
        import time
        from dmq_actors import MessageQueue
        with MessageQueue() as mq:
            mq.create_topic("t")
            mq.create_consumer_group("g", "t")
            mq.add_consumer("g", "c1")
            try:
                print("ready", flush=True)
                {wait}
            finally:
                print(time.monotonic(), flush=True)
    """
    with start_python(script) as child:
        assert child.stdout.readline() == "ready\n"
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=3 * WATCHDOG)
    assert float(out) - sent < 1.0
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert child.returncode in {130, -signal.SIGINT}


# P57


@posix
@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_the_child_of_a_fork_is_told_so_and_the_parent_goes_on(how):
    """P57, sentry-python 6149 and another: threads and locks do not survive a fork."""
    fork = """
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            child()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    """
    spawn = """
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        code = process.exitcode
    """
    script = f"""
        import multiprocessing, os, signal
        from dmq_actors import BrokerForkedError, Message, MessageQueue
        mq = MessageQueue()
        mq.create_topic("t")
        mq.create_consumer_group("g", "t")
        mq.add_consumer("g", "c1")
        mq.publish("t", Message("before"))

        def child():
            signal.alarm(10)
            try:
                mq.publish("t", Message("in the child"))
            except BrokerForkedError as error:
                print("refused", "fork" in str(error), flush=True)
            mq.close()
            with MessageQueue() as own:
                own.create_topic("t")
                print("own", own.publish("t", Message("own")).offset, flush=True)

        {dedent(fork if how == "os.fork" else spawn).replace(chr(10), chr(10) + " " * 8)}
        print("child", code)
        mq.publish("t", Message("after"))
        print("parent", [m.value for m in mq.poll("g", "c1")])
        mq.close()
    """
    with start_python(script) as parent:
        out, err = parent.communicate(timeout=3 * WATCHDOG)
    assert err == ""
    assert out.splitlines() == [
        "refused True",
        "own 0",
        "child 0",
        "parent ['before', 'after']",
    ]
    assert parent.returncode == 0


# P59


def test_a_retention_count_bounds_what_is_kept_and_counts_what_it_dropped(mq):
    """P59, baseplate 302 and others: a fast producer eats the memory of the process."""
    mq.create_topic("t", 2, retention_count=100)
    payload = bytes(1_024)
    for _ in range(20):
        mq.publish_many("t", [Message(payload) for _ in range(500)])
        info = mq.get_topic_info("t")
        assert info.message_count <= 200
    assert (info.published_total, info.message_count, info.dropped_total) == (10_000, 200, 9_800)
    assert [partition.dropped_total for partition in info.partitions] == [4_900, 4_900]


def test_what_retention_dropped_is_freed(mq):
    """P59, baseplate 302 and others: a dropped message that somebody still holds is no gain."""

    class Payload:
        pass

    mq.create_topic("t", 1, retention_count=5, share_values=True)
    payloads = [Payload() for _ in range(20)]
    alive = [weakref.ref(payload) for payload in payloads]
    while payloads:
        mq.publish("t", Message(payloads.pop(0)))
    mq.list_topics()
    gc.collect()
    assert [ref() is not None for ref in alive] == [False] * 15 + [True] * 5


def test_retention_bytes_bound_what_is_kept(mq):
    """P59, baseplate 302 and others: the same by size."""
    mq.create_topic("t", 1, retention_bytes=10_240)
    for _ in range(100):
        mq.publish("t", Message(bytes(1_024)))
        [partition] = mq.get_topic_info("t").partitions
        assert partition.size_bytes <= 10_240
    assert (partition.message_count, partition.dropped_total) == (10, 90)


def test_a_group_that_was_overtaken_by_retention_goes_on_and_counts_what_it_missed(mq, caplog):
    """P59, baseplate 302 and others: the slow consumer is told what it lost."""
    caplog.set_level("WARNING", "dmq_actors")
    mq.create_topic("t", 1, retention_count=100)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "slow")
    mq.publish_many("t", [Message(at) for at in range(1_000)])
    assert [m.value for m in mq.poll("g", "slow", 1_000)] == list(range(900, 1_000))
    assert mq.get_group_info("g").partitions[0].skipped_total == 900
    [told] = logged(caplog, events.OFFSET_OUT_OF_RANGE)
    assert (told["position"], told["resumed_at"]) == (0, 900)


def test_a_topic_without_a_bound_warns_when_it_grows(mq, caplog, monkeypatch):
    """P59, baseplate 302 and others: at 1, 2, 4, 8 … times the mark, once each."""
    assert traffic.GROWING_AT == 1_000_000
    monkeypatch.setattr(traffic, "GROWING_AT", 1_000)
    caplog.set_level("WARNING", "dmq_actors")
    mq.create_topic("free", 4)
    mq.create_topic("bound", 4, retention_count=1_000_000)
    batch = [Message("v")] * 250
    for _ in range(36):
        mq.publish_many("free", batch)
        mq.publish_many("bound", batch)
    told = [(data["topic"], data["messages"]) for data in logged(caplog, events.TOPIC_GROWING)]
    assert told == [("free", at) for at in (1_000, 2_000, 4_000, 8_000)]


def test_a_batch_that_passes_several_marks_at_once_is_told_of_once(mq, caplog, monkeypatch):
    """P59, baseplate 302 and others: one warning for a batch, and the next one at 8."""
    monkeypatch.setattr(traffic, "GROWING_AT", 1_000)
    caplog.set_level("WARNING", "dmq_actors")
    mq.create_topic("t", 3)
    for count in (4_500, 3_400, 200):
        mq.publish_many("t", [Message("v")] * count)
    told = [data["messages"] for data in logged(caplog, events.TOPIC_GROWING)]
    assert told == [4_500, 8_100]


def test_promises_that_nobody_keeps_are_freed(mq):
    """P59, baseplate 302 and others: many publishes that nobody waits for."""
    mq.create_topic("t", 1, retention_count=10)
    coordinator = mq.coordinator
    refs = []
    for at in range(20_000):
        promise = coordinator.publish("t", Message(at))
        if at % 1_000 == 0:
            refs.append(weakref.ref(promise))
    del promise
    last = coordinator.publish("t", Message("last")).get(timeout=WATCHDOG)
    assert last.offset == 20_000
    mq.list_topics()
    gc.collect()
    assert [ref for ref in refs if ref() is not None] == []
