"""From the first to the last breath: close, fork, Ctrl-C, exit, collection, outside stops."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from textwrap import dedent

import pykka
import pytest
from support import WATCHDOG, Crew, HeldActor, all_at_once

from dmq_actors import (
    AckResult,
    ActorCrashedError,
    BrokerClosedError,
    Message,
    MessageQueue,
    Promise,
    events,
)
from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._core import scan
from dmq_actors._core.group_state import GroupState
from dmq_actors._core.partition_log import PartitionLog
from dmq_actors._core.progress import Progress
from dmq_actors._core.retention import Retention
from dmq_actors._core.traffic import Traffic
from dmq_actors.testing import ManualClock

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and fork")


def values(messages):
    return [message.value for message in messages]


def new_broker(**options):
    """A broker with topic t of two partitions and group g with member c."""
    mq = MessageQueue(call_timeout=WATCHDOG, **options)
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    return mq


def broker_threads(before=frozenset()):
    """The threads of brokers that run now and did not run before."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("dmq-")} - before


def pending_promises():
    """All promises of this process that were not answered yet."""
    found = [thing for thing in gc.get_objects() if isinstance(thing, Promise)]
    return [promise for promise in found if not promise.done()]


def start_clock_thread(mq):
    """Let there be a timer, and with it the thread that serves timers."""
    waiting = mq.group_actor("g").poll("c", timeout=600)
    mq.get_group_info("g")  # behind the poll
    mq.partition_actor("t", 0).info().get(timeout=WATCHDOG)
    mq.partition_actor("t", 1).info().get(timeout=WATCHDOG)
    mq.get_group_info("g")  # behind what the partitions answered
    assert not waiting.done()


def facade_calls(mq, message):
    """Every public method of the facade but close, with arguments that would be right."""
    return {
        "create_topic": partial(mq.create_topic, "new"),
        "delete_topic": partial(mq.delete_topic, "t"),
        "list_topics": mq.list_topics,
        "get_topic_info": partial(mq.get_topic_info, "t"),
        "publish": partial(mq.publish, "t", Message("v")),
        "publish to partition": partial(mq.publish, "t", Message("v"), partition=0),
        "publish_many": partial(mq.publish_many, "t", [Message("v")]),
        "publish_many nothing": partial(mq.publish_many, "t", []),
        "create_consumer_group": partial(mq.create_consumer_group, "new", "t"),
        "delete_consumer_group": partial(mq.delete_consumer_group, "g"),
        "list_consumer_groups": mq.list_consumer_groups,
        "get_group_info": partial(mq.get_group_info, "g"),
        "add_consumer": partial(mq.add_consumer, "g", "new"),
        "remove_consumer": partial(mq.remove_consumer, "g", "c"),
        "poll": partial(mq.poll, "g", "c"),
        "poll for ever": partial(mq.poll, "g", "c", timeout=None),
        "seek": partial(mq.seek, "g", 0, 0),
        "commit": partial(mq.commit, "g", "c"),
        "acknowledge": partial(mq.acknowledge, "g", message),
        "nack": partial(mq.acknowledge, "g", message, success=False),
        "get_consumer_lag": partial(mq.get_consumer_lag, "g"),
        "redrive": partial(mq.redrive, "t"),
        "coordinator": lambda: mq.coordinator,
        "partition_actor": partial(mq.partition_actor, "t", 0),
        "group_actor": partial(mq.group_actor, "g"),
    }


def proxy_calls(mq, message):
    """Every public method of proxies made now, and a wait for each answer."""
    coordinator, group = mq.coordinator, mq.group_actor("g")
    partition = mq.partition_actor("t", 0)
    asked = {
        "create_topic": partial(coordinator.create_topic, "new"),
        "delete_topic": partial(coordinator.delete_topic, "t"),
        "list_topics": coordinator.list_topics,
        "get_topic_info": partial(coordinator.get_topic_info, "t"),
        "publish": partial(coordinator.publish, "t", Message("v")),
        "publish_many": partial(coordinator.publish_many, "t", [Message("v")]),
        "publish_many nothing": partial(coordinator.publish_many, "t", []),
        "create_consumer_group": partial(coordinator.create_consumer_group, "new", "t"),
        "delete_consumer_group": partial(coordinator.delete_consumer_group, "g"),
        "list_consumer_groups": coordinator.list_consumer_groups,
        "add_consumer": partial(coordinator.add_consumer, "g", "new"),
        "remove_consumer": partial(coordinator.remove_consumer, "g", "c"),
        "partition.read": partial(partition.read, 0),
        "partition.bounds": partition.bounds,
        "partition.info": partition.info,
        "group.add_consumer": partial(group.add_consumer, "new"),
        "group.remove_consumer": partial(group.remove_consumer, "c"),
        "group.poll": partial(group.poll, "c", timeout=None),
        "group.commit": partial(group.commit, "c"),
        "group.seek": partial(group.seek, 0, 0),
        "group.acknowledge": partial(group.acknowledge, message),
        "group.nack": partial(group.acknowledge, message, success=False),
        "group.lag": group.lag,
        "group.info": group.info,
    }
    calls = {name: lambda ask=ask: ask().get(timeout=WATCHDOG) for name, ask in asked.items()}
    calls["tell"] = lambda: coordinator.create_topic.defer("new")
    calls["an attribute"] = lambda: coordinator.actor_urn.get(timeout=WATCHDOG)
    calls["set an attribute"] = lambda: setattr(group, "colour", "red")
    calls["another proxy"] = lambda: partition.actor_ref.proxy().info().get(timeout=WATCHDOG)
    return calls


def outcome_of(call):
    """What a call returned or raised."""
    try:
        return call()
    except Exception as error:  # the caller looks at it
        return error


class Held:
    """The dispatcher of a broker, held in a callback until `release`; a context manager.

    A promise that is still pending runs its callbacks in the thread that answers: an actor's.
    """

    def __init__(self, mq, in_actor=None):
        self._gate = threading.Event()
        self._entered = threading.Event()
        self.outcome = None
        mq.create_topic("hold")
        mq.create_consumer_group("hold", "hold")
        mq.add_consumer("hold", "hold")
        waiting = mq.group_actor("hold").poll("hold", 1, None)

        def hold(_promise):
            if in_actor is not None:
                self.outcome = outcome_of(in_actor)
            self._entered.set()
            self._gate.wait(2 * WATCHDOG)

        waiting.add_done_callback(hold)
        mq.publish("hold", Message("go"))
        assert self._entered.wait(WATCHDOG)

    def release(self):
        self._gate.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


# Close


def test_close_may_be_called_again_and_answers_the_same():
    with new_broker() as mq:
        mq.publish("t", Message("v"))
        mq.poll("g", "c")
        report = mq.close()
        assert (report.in_flight, report.still_running, report.clean) == ({"g": 1}, (), True)
        assert mq.close() == report
        assert "closed" in repr(mq)
    assert mq.close() == report


def test_all_that_close_at_the_same_moment_wait_for_the_end_and_get_the_same_report():
    for _ in range(10):
        before = broker_threads()
        mq = new_broker()
        mq.publish("t", Message("v"))
        mq.poll("g", "c", timeout=1)
        own = broker_threads(before)

        def close_and_look(mq=mq, own=own):
            report = mq.close()
            return report, [thread.name for thread in own if thread.is_alive()]

        outcomes = all_at_once([close_and_look] * 8)
        assert outcomes == [(outcomes[0][0], [])] * 8
        assert outcomes[0][0].in_flight == {"g": 1}


def test_close_reports_what_is_in_flight_by_group():
    mq = new_broker()
    for group in ("half", "none"):
        mq.create_consumer_group(group, "t")
        mq.add_consumer(group, "c")
    mq.publish_many("t", [Message(at) for at in range(6)])
    mq.poll("g", "c")
    for message in mq.poll("half", "c")[:4]:
        mq.acknowledge("half", message)
    assert mq.close().in_flight == {"g": 6, "half": 2}


def test_close_wakes_every_poll_that_waits():
    mq = new_broker()
    mq.add_consumer("g", "d")
    mq.add_consumer("g", "idle")
    promises = [
        mq.group_actor("g").poll(consumer, timeout=timeout)
        for consumer in ("c", "c", "d", "idle")
        for timeout in (None, 600.0)
    ]
    started = threading.Barrier(5)

    def wait(consumer, timeout):
        started.wait(WATCHDOG)
        with pytest.raises(BrokerClosedError):
            mq.poll("g", consumer, timeout=timeout)

    with Crew() as crew:
        for consumer in ("c", "idle"):
            for timeout in (None, 600.0):
                crew.start(wait, consumer, timeout)
        started.wait(WATCHDOG)
        assert mq.close().clean
    for promise in promises:
        with pytest.raises(BrokerClosedError):
            promise.get(timeout=WATCHDOG)


def test_every_call_after_the_close_says_that_the_broker_is_closed():
    mq = new_broker()
    mq.publish("t", Message("v"))
    [message] = mq.poll("g", "c")
    calls = facade_calls(mq, message)
    mq.close()
    outcomes = {name: outcome_of(call) for name, call in calls.items()}
    wrong = {n: repr(o) for n, o in outcomes.items() if type(o) is not BrokerClosedError}
    assert wrong == {}


def test_every_call_of_a_proxy_after_the_close_says_that_the_broker_is_closed():
    mq = new_broker()
    mq.publish("t", Message("v"))
    [message] = mq.poll("g", "c")
    calls = proxy_calls(mq, message)
    mq.close()
    outcomes = {name: outcome_of(call) for name, call in calls.items()}
    wrong = {n: repr(o) for n, o in outcomes.items() if type(o) is not BrokerClosedError}
    assert wrong == {}


def test_calls_that_arrive_while_the_broker_closes_are_refused_and_leave_nothing():
    mq = new_broker()
    coordinator, group = mq.coordinator, mq.group_actor("g")
    inbox = coordinator.actor_ref.actor_inbox
    with Crew(timeout=2 * WATCHDOG) as crew, HeldActor(coordinator.actor_ref) as held:
        crew.start(mq.close)
        deadline = time.monotonic() + WATCHDOG
        while inbox.empty():  # until the close is under way
            assert time.monotonic() < deadline
        asked = {
            "create_topic": coordinator.create_topic("late"),
            "publish": coordinator.publish("t", Message("late")),
            "publish_many": coordinator.publish_many("t", [Message(at) for at in range(4)]),
            "create_consumer_group": coordinator.create_consumer_group("late", "t"),
            "add_consumer": coordinator.add_consumer("g", "late"),
            "get_topic_info": coordinator.get_topic_info("t"),
            "delete_topic": coordinator.delete_topic("t"),
            "delete_consumer_group": coordinator.delete_consumer_group("g"),
            "list_topics": coordinator.list_topics(),
            "poll": group.poll("c", timeout=None),
        }
        held.release()
    left = pykka.ActorRegistry.get_all()
    for ref in left:  # or every test after this one would find them
        pykka.ActorRegistry.unregister(ref)
    outcomes = {n: outcome_of(partial(p.get, timeout=WATCHDOG)) for n, p in asked.items()}
    wrong = {n: repr(o) for n, o in outcomes.items() if type(o) is not BrokerClosedError}
    assert (wrong, [str(ref) for ref in left]) == ({}, [])


def test_a_broker_whose_thread_is_held_up_says_so_when_it_is_closed():
    before = broker_threads()
    mq = new_broker()
    with Held(mq):
        start = time.monotonic()
        report = mq.close(timeout=0.05)
        assert time.monotonic() - start < WATCHDOG / 2
    assert (report.clean, report.still_running) == (False, ("dmq-dispatcher-0",))
    for thread in broker_threads(before):
        thread.join(WATCHDOG)
    assert broker_threads(before) == set()


def test_a_close_in_the_thread_of_an_actor_does_not_hang_and_the_next_one_waits():
    before = broker_threads()
    mq = new_broker()
    try:
        start_clock_thread(mq)
        assert len(broker_threads(before)) == 2
        with Held(mq, in_actor=mq.close) as held:
            assert not isinstance(held.outcome, Exception)
            with pytest.raises(BrokerClosedError):
                mq.list_topics()
            while_held = mq.close(timeout=0.05)
        mq.close()
        left = [thread.name for thread in broker_threads(before)]
    finally:
        mq.close()
        mq._broker.clock.close(time.monotonic() + WATCHDOG)
        for thread in broker_threads(before):
            thread.join(WATCHDOG)
    assert not while_held.clean, "a thread still ran"
    assert left == [], "these outlived the close"


def test_a_manual_clock_may_outlive_several_brokers():
    clock = ManualClock()
    for _ in range(2):
        with new_broker(clock=clock) as mq:
            waiting = mq.group_actor("g").poll("c", timeout=5)
            mq.get_group_info("g")
            clock.advance(5)
            assert waiting.get(timeout=WATCHDOG) == []
            mq.group_actor("g").poll("c", timeout=5)
        clock.advance(10)  # the timer of a poll of a broker that is gone


def test_no_thread_actor_or_pending_promise_outlives_a_close():
    before = broker_threads()
    of_others = weakref.WeakSet(pending_promises())
    mq = new_broker()
    mq.publish_many("t", [Message(at) for at in range(10)])
    mq.poll("g", "c", 3, timeout=1)
    coordinator, group = mq.coordinator, mq.group_actor("g")
    promises = [coordinator.publish("t", Message(at)) for at in range(100)]
    promises += [group.poll("nobody", timeout=None), group.poll("c", timeout=None)]
    mq.commit("g", "c")
    promises += [group.poll("c", timeout=None) for _ in range(10)]
    assert mq.close().clean
    assert broker_threads(before) == set()
    assert pykka.ActorRegistry.get_all() == []
    assert [promise for promise in promises if not promise.done()] == []

    pending = [weakref.ref(promise) for promise in promises]
    broker = weakref.ref(mq._broker)
    promises.clear()
    del mq, coordinator, group
    gc.collect()
    assert [ref() for ref in pending if ref() is not None] == []
    assert broker() is None
    assert [promise for promise in pending_promises() if promise not in of_others] == []


def test_two_hundred_brokers_leave_nothing_behind():
    before = set(threading.enumerate())
    for _ in range(200):
        with MessageQueue() as mq:
            mq.create_topic("t", 3)
            mq.publish("t", Message("v"))
    assert set(threading.enumerate()) == before
    assert pykka.ActorRegistry.get_all() == []


def test_an_error_in_the_with_block_closes_the_broker_and_goes_on():
    before = broker_threads()
    with pytest.raises(ZeroDivisionError), new_broker() as mq:
        mq.publish("t", Message(1 / 0))
    assert broker_threads(before) == set()
    with pytest.raises(BrokerClosedError):
        mq.list_topics()


# Collection


@pytest.mark.parametrize("clock_runs", [False, True], ids=["no timer yet", "clock thread runs"])
def test_a_queue_that_nobody_holds_any_more_stops_its_threads(clock_runs):
    before = broker_threads()
    mq = new_broker()
    clock = mq._broker.clock
    broker = weakref.ref(mq._broker)
    try:
        if clock_runs:
            start_clock_thread(mq)
        own = broker_threads(before)
        assert len(own) == 1 + clock_runs
        del mq
        gc.collect()
        for thread in own:
            thread.join(2.0)
        alive = [thread.name for thread in own if thread.is_alive()]
    finally:
        if (left := broker()) is not None:
            left.close(WATCHDOG)
        del left
        clock.close(time.monotonic() + WATCHDOG)
    assert alive == []
    assert pykka.ActorRegistry.get_all() == []
    gc.collect()
    assert broker() is None


def test_who_waits_for_a_queue_that_is_collected_is_told_that_it_is_closed():
    before = broker_threads()
    mq = new_broker(clock=ManualClock())
    promise = mq.group_actor("g").poll("c", timeout=None)
    del mq
    gc.collect()
    with pytest.raises(BrokerClosedError):
        promise.get(timeout=WATCHDOG)
    for thread in broker_threads(before):
        thread.join(WATCHDOG)


# Stops from outside


def test_a_host_that_stops_all_actors_in_the_middle_of_traffic_loses_nothing(mq):
    mq.create_topic("t", 3)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "a")
    mq.add_consumer("g", "b")
    published, got = [], []
    over = threading.Event()

    def publish(name):
        messages = [Message((name, at), key=name) for at in range(500)]
        published.extend(mq.publish("t", message).value for message in messages)

    def consume(name):
        while not (over.is_set() and mq.get_group_info("g").lag == 0):
            for message in mq.poll("g", name, 20, timeout=0.05):
                got.append(message.value)
                assert mq.acknowledge("g", message) is AckResult.COMPLETED

    def stop_all():
        for _ in range(25):
            assert all(pykka.ActorRegistry.stop_all(timeout=WATCHDOG))

    with Crew(timeout=3 * WATCHDOG) as crew:
        consumers = [crew.start(consume, name) for name in ("a", "b")]
        producers = [crew.start(publish, name) for name in ("x", "y", "z")]
        stopper = crew.start(stop_all)
        for thread in (*producers, stopper):
            thread.join(2 * WATCHDOG)
        over.set()
        assert len(consumers) == 2
    assert sorted(published) == [(name, at) for name in "xyz" for at in range(500)]
    assert sorted(got) == sorted(published)
    for name in "xyz":
        assert [at for of, at in got if of == name] == list(range(500))
    assert mq.get_group_info("g").restarts == 25
    assert [partition.restarts for partition in mq.get_topic_info("t").partitions] == [25] * 3


def test_proxies_and_polls_survive_a_host_that_stops_all_actors(mq):
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    coordinator, group = mq.coordinator, mq.group_actor("g")
    partition = mq.partition_actor("t", 0)
    waiting = group.poll("c", timeout=None)
    pykka.ActorRegistry.stop_all(timeout=WATCHDOG)
    assert coordinator.list_topics().get(timeout=WATCHDOG) == ["t"]
    assert partition.bounds().get(timeout=WATCHDOG) == (0, 0)
    mq.publish("t", Message("v"))
    assert values(waiting.get(timeout=WATCHDOG)) == ["v"]


def test_stopping_an_actor_that_is_gone_already_answers_false_as_pykka_does(mq):
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    gone = [mq.partition_actor("t", 0).actor_ref, mq.group_actor("g").actor_ref]
    mq.delete_topic("t")
    assert [outcome_of(partial(ref.stop, timeout=WATCHDOG)) for ref in gone] == [False, False]


# Crashes


class Crash:
    """Makes one method raise the next time it is called, before or after its work."""

    def __init__(self, monkeypatch, owner, name, *, after=False, at_call=1, error=SystemExit):
        original = getattr(owner, name)
        self.crashed = threading.Event()
        calls = 0

        def crash(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls != at_call:
                return original(*args, **kwargs)
            if after:
                original(*args, **kwargs)
            self.crashed.set()
            raise error(f"from {name}")

        monkeypatch.setattr(owner, name, crash)


class Bystander(pykka.ThreadingActor):
    """An actor of the host that has nothing to do with the broker."""

    def ping(self):
        return "pong"


@pytest.fixture
def bystander():
    ref = Bystander.start()
    yield ref.proxy()
    assert ref.stop(timeout=WATCHDOG) is True, "it was stopped by somebody else"


CRASHES = {
    "partition": (PartitionLog, "append", lambda mq, _: mq.publish("t", Message("x"))),
    "coordinator": (Traffic, "deal", lambda mq, _: mq.publish("t", Message("x"))),
    "group commit": (GroupState, "commit", lambda mq, _: mq.commit("g", "c")),
    "group join": (GroupState, "add_member", lambda mq, _: mq.add_consumer("g", "d")),
    "group ack": (Progress, "acknowledge", lambda mq, m: mq.acknowledge("g", m)),
    "group nack": (Progress, "nack", lambda mq, m: mq.acknowledge("g", m, success=False)),
    "group commit of an offset": (
        Progress,
        "check_commit",
        lambda mq, _: mq.commit("g", "c", {0: 1}),
    ),
    "group seek": (Progress, "seek", lambda mq, _: mq.seek("g", 0, 1)),
    "group lag": (ConsumerGroupActor, "_lags", lambda mq, _: mq.get_consumer_lag("g")),
    "group info": (ConsumerGroupActor, "_describe", lambda mq, _: mq.get_group_info("g")),
    "group poll": (GroupState, "plan", lambda mq, _: mq.poll("g", "c")),
}


@pytest.mark.parametrize("where", CRASHES)
def test_a_system_exit_in_an_actor_hurts_neither_others_nor_its_state(
    mq, monkeypatch, caplog, bystander, where
):
    caplog.set_level("INFO", "dmq_actors")
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    mq.create_consumer_group("other", "t")
    mq.add_consumer("other", "c")
    mq.publish_many("t", [Message(at) for at in range(5)])
    [first] = mq.poll("g", "c", 1)
    owner, name, call = CRASHES[where]
    with monkeypatch.context() as patched:
        Crash(patched, owner, name)
        with pytest.raises(ActorCrashedError, match="restarted"):
            call(mq, first)
    assert bystander.ping().get(timeout=WATCHDOG) == "pong"
    assert values(mq.poll("other", "c")) == [0, 1, 2, 3, 4]
    mq.publish("t", Message("after"))
    assert values(mq.poll("g", "c")) == [1, 2, 3, 4, "after"]
    assert mq.acknowledge("g", first) is AckResult.COMPLETED
    mq.commit("g", "c")
    assert mq.get_consumer_lag("g") == {0: 0}
    restarted = [
        record.dmq for record in caplog.records if record.dmq["event"] == events.ACTOR_RESTARTED
    ]
    assert len(restarted) == 1
    assert "SystemExit" in restarted[0]["cause"]
    # These three are answered in a message of the actor to itself, which has no caller to tell.
    unheard = ["group-g"] if where in {"group seek", "group lag", "group info"} else []
    assert [failure.actor for failure in mq.take_actor_failures()] == unheard


FAULTS = {**CRASHES, "group creation": (GroupState, "__init__", None)}


@pytest.mark.parametrize("where", FAULTS)
def test_an_error_in_an_actor_reaches_its_caller_at_once_wherever_it_is_raised(
    mq, monkeypatch, where
):
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    mq.publish_many("t", [Message(at) for at in range(5)])
    [first] = mq.poll("g", "c", 1)
    owner, name, call = FAULTS[where]
    call = call or (lambda mq, _: mq.create_consumer_group("new", "t"))
    with monkeypatch.context() as patched:
        Crash(patched, owner, name, error=ArithmeticError)
        outcome = outcome_of(partial(call, mq, first))
    assert isinstance(outcome, ArithmeticError | ActorCrashedError)
    mq.publish("t", Message("after"))
    assert values(mq.poll("g", "c")) == [1, 2, 3, 4, "after"]
    assert mq.acknowledge("g", first) is AckResult.COMPLETED
    mq.commit("g", "c")
    assert mq.get_consumer_lag("g") == {0: 0}
    mq.create_consumer_group("new", "t")


def test_a_message_that_was_stored_before_a_crash_reaches_the_polls_that_wait(mq, monkeypatch):
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    waiting = mq.group_actor("g").poll("c", timeout=None)
    mq.get_group_info("g")  # behind the poll, and the watch it has left in the partition
    mq.partition_actor("t", 0).info().get(timeout=WATCHDOG)
    with monkeypatch.context() as patched:
        Crash(patched, Retention, "cut", after=True)
        with pytest.raises(ActorCrashedError):
            mq.publish("t", Message("stored"))
    assert mq.get_topic_info("t").message_count == 1, "this test must crash after the storing"
    assert mq.get_consumer_lag("g") == {0: 1}
    assert values(waiting.get(timeout=WATCHDOG)) == ["stored"]


@pytest.mark.parametrize("error", [SystemExit, ArithmeticError])
def test_a_crash_while_messages_are_collected_neither_loses_one_nor_gives_too_many(
    mq, monkeypatch, error
):
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    mq.publish_many("t", [Message(at) for at in range(10)])
    with monkeypatch.context() as patched:
        crash = Crash(patched, scan, "deliver", at_call=2, error=error)
        first = outcome_of(partial(mq.poll, "g", "c", 6, timeout=1))
    assert crash.crashed.is_set()
    if isinstance(first, Exception):
        assert isinstance(first, ArithmeticError | ActorCrashedError)
        first = []
    assert len(first) <= 6
    rest = []
    while batch := mq.poll("g", "c", 6):
        rest += batch
    assert sorted(values(first + rest)) == list(range(10))
    assert {failure.actor for failure in mq.take_actor_failures()} == {"group-g"}


def test_a_crash_of_the_coordinator_while_a_group_is_created_is_told_to_its_caller(mq, monkeypatch):
    mq.create_topic("t")
    with monkeypatch.context() as patched:
        Crash(patched, GroupState, "__init__")
        outcome = outcome_of(partial(mq.create_consumer_group, "g", "t"))
    assert isinstance(outcome, ActorCrashedError)
    with contextlib.suppress(ValueError):  # the outcome was unknown: look before repeating
        mq.create_consumer_group("g", "t")
    assert mq.list_consumer_groups() == ["g"]
    mq.add_consumer("g", "c")
    mq.publish("t", Message("v"))
    assert values(mq.poll("g", "c")) == ["v"]
    assert [failure.actor for failure in mq.take_actor_failures()] == ["coordinator"]


@pytest.mark.parametrize("error", [SystemExit, ArithmeticError])
@pytest.mark.parametrize("step", ["read", "store", "complete"])
def test_a_crash_on_the_way_to_the_dead_letters_neither_loses_nor_completes_the_message(
    mq, monkeypatch, step, error
):
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t", max_failures=1)
    mq.add_consumer("g", "c")
    mq.publish("t", Message("v"))
    [message] = mq.poll("g", "c")
    owner, name = {
        "read": (PartitionLog, "read"),
        "store": (PartitionLog, "append"),
        "complete": (Progress, "buried"),
    }[step]
    with monkeypatch.context() as patched:
        crash = Crash(patched, owner, name, error=error)
        outcome = outcome_of(partial(mq.acknowledge, "g", message, success=False))
        assert crash.crashed.is_set()
    if isinstance(outcome, Exception):
        assert isinstance(outcome, ArithmeticError | ActorCrashedError)
    buried = "__dlq_t" in mq.list_topics() and mq.get_topic_info("__dlq_t").message_count > 0
    assert buried or mq.get_consumer_lag("g") == {0: 1}
    if outcome is AckResult.DEAD_LETTERED:
        assert mq.get_consumer_lag("g") == {0: 0}
    told = error is SystemExit and step != "complete"  # the group hears of it, and goes on
    assert [failure.actor for failure in mq.take_actor_failures()] == ([] if told else ["group-g"])


# Children


PREAMBLE = """
import os, signal, sys, threading
if hasattr(signal, "alarm"):
    signal.alarm(20)
from dmq_actors import *
def new_broker():
    mq = MessageQueue(call_timeout=10)
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    return mq
"""


def start_python(script):
    """A child process that cannot hang: SIGALRM ends it, whatever its threads do."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PREAMBLE + dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_python(script):
    """Exit code, stdout and stderr of a child process."""
    with start_python(script) as child:
        out, err = child.communicate(timeout=3 * WATCHDOG)
    return child.returncode, out, err


# Fork


@posix
@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_in_the_child_of_a_fork_every_call_is_refused_and_nothing_hangs(how):
    helpers = "\n".join(
        inspect.getsource(helper) for helper in (facade_calls, proxy_calls, outcome_of)
    )
    fork = {
        "os.fork": """
            pid = os.fork()
            if pid == 0:
                try:
                    child()
                finally:
                    os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        """,
        "multiprocessing": """
            import multiprocessing
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
            code = process.exitcode
        """,
    }
    script = "\n".join(
        [
            "from functools import partial",
            f"WATCHDOG = {WATCHDOG}",
            helpers,
            dedent("""
                mq = new_broker()
                mq.publish("t", Message("before"))
                [message] = mq.poll("g", "c")
                calls = {
                    **facade_calls(mq, message),
                    **{"proxy " + name: call for name, call in proxy_calls(mq, message).items()},
                }
                over = threading.Event()
                def keep_publishing():
                    while not over.is_set():
                        mq.publish("t", Message("traffic"))
                traffic = threading.Thread(target=keep_publishing)

                def child():
                    signal.alarm(10)
                    for name, call in calls.items():
                        found = outcome_of(call)
                        if type(found) is not BrokerForkedError:
                            print("wrong:", name, repr(found), flush=True)
                    mq.close()
                    mq.close(timeout=0)
                    with mq:
                        pass
                    repr(mq)
                    print("closed in the child", flush=True)

                traffic.start()
            """),
            dedent(fork[how]),
            dedent("""
                over.set()
                traffic.join()
                print("child", code)
                mq.publish("t", Message("after"))
                print("parent", mq.get_group_info("g").members, mq.close().clean)
            """),
        ]
    )
    code, out, err = run_python(script)
    assert out.splitlines() == ["closed in the child", "child 0", "parent ('c',) True"]
    assert (code, err) == (0, "")


@posix
def test_in_the_child_of_a_fork_a_wait_for_a_promise_of_the_parent_is_refused():
    code, out, err = run_python("""
        mq = new_broker()
        pending = mq.group_actor("g").poll("c", timeout=None)
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            try:
                pending.get(timeout=3)
            except BaseException as error:
                print(type(error).__name__, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        mq.publish("t", Message("v"))
        print([message.value for message in pending.get(timeout=10)])
        mq.close()
    """)
    assert out.splitlines() == ["BrokerForkedError", "['v']"]
    assert (code, err) == (0, "")


@posix
def test_the_child_of_a_fork_may_have_a_broker_of_its_own_and_exits_with_its_own_code():
    code, out, err = run_python("""
        mq = new_broker()
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            own = new_broker()
            own.publish("t", Message("own"))
            print([message.value for message in own.poll("g", "c", timeout=5)], flush=True)
            sys.exit(7)  # neither broker is closed
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        sys.exit(3)
    """)
    assert (code, out.splitlines(), err) == (3, ["['own']", "7"], "")


# Ctrl-C


WAITS = {
    "poll": "mq.poll('g', 'c', timeout=None)",
    "poll with a timeout": "mq.poll('g', 'c', timeout=600)",
    "promise": "mq.group_actor('g').poll('c', timeout=None).get()",
    "promise with a timeout": "mq.group_actor('g').poll('c', timeout=None).get(timeout=600)",
}


@posix
@pytest.mark.parametrize(
    ("wait", "caught"),
    [
        ("poll", True),
        ("poll", False),
        ("poll with a timeout", True),
        ("promise", True),
        ("promise", False),
        ("promise with a timeout", True),
    ],
)
def test_ctrl_c_ends_a_wait_within_a_second_and_the_broker_still_works(wait, caught):
    with start_python(f"""
        import time
        main = threading.get_ident()
        def tell_when_main_waits():
            gate = "gate.py"
            while not sys._current_frames()[main].f_code.co_filename.endswith(gate):
                pass
            print("ready", flush=True)
        with new_broker() as mq:
            try:
                threading.Thread(target=tell_when_main_waits).start()
                {WAITS[wait]}
            except KeyboardInterrupt:
                print(time.monotonic())
                if not {caught}:
                    raise
            finally:
                mq.publish("t", Message("after the interrupt"))
                print([message.value for message in mq.poll("g", "c", timeout=10)], flush=True)
        print([name for thread in threading.enumerate() if "dmq" in (name := thread.name)])
    """) as child:
        assert child.stdout.readline() == "ready\n"
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=3 * WATCHDOG)
    raised, *printed = out.splitlines()
    assert float(raised) - sent < 1.0
    if caught:
        assert (printed, err) == (["['after the interrupt']", "[]"], "")
        assert child.returncode == 0
    else:
        assert printed == ["['after the interrupt']"]
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert child.returncode in {130, -signal.SIGINT}


def test_an_interrupt_that_comes_just_as_a_wait_begins_still_ends_it_within_a_second():
    """Such a signal does not end the system call, and only the next turn of Python sees it."""
    code, out, err = run_python("""
        import _thread, time
        signal.alarm(5)
        main = threading.get_ident()
        def interrupt_when_main_waits():
            while not sys._current_frames()[main].f_code.co_filename.endswith("gate.py"):
                pass
            _thread.interrupt_main()
        mq = new_broker()
        interrupter = threading.Thread(target=interrupt_when_main_waits)
        start = time.monotonic()
        try:
            interrupter.start()
            mq.poll("g", "c", timeout=None)
        except KeyboardInterrupt:
            print(time.monotonic() - start < 1.0)
        interrupter.join()
        mq.close()
    """)
    assert (code, out, err) == (0, "True\n", "")


@pytest.mark.parametrize("by", ["interrupt", "abandon"])
def test_a_poll_given_up_before_its_group_has_seen_it_does_not_swallow_the_next_message(
    mq, monkeypatch, by
):
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")

    def interrupt(_promise, **_):
        raise KeyboardInterrupt

    with Held(mq), monkeypatch.context() as patched:
        if by == "abandon":
            mq.group_actor("g").poll("c", timeout=None).abandon()
        else:
            patched.setattr(Promise, "get", interrupt)
            with pytest.raises(KeyboardInterrupt):
                mq.poll("g", "c", timeout=None)
    mq.publish("t", Message("v"))
    assert values(mq.poll("g", "c")) == ["v"]


@posix
def test_hundreds_of_interrupts_at_any_moment_neither_hang_nor_lose_nor_crash_anything():
    code, out, err = run_python("""
        import faulthandler, random
        signal.alarm(0)  # its timer is needed here
        faulthandler.dump_traceback_later(20, exit=True)
        moments = random.Random(seed := random.randrange(2**32))
        armed = False
        def interrupt(*_):
            global armed
            if armed:
                armed = False
                raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        mq = new_broker()
        published, got, swallowed = [], set(), 0
        for _ in range(400):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.00002, 0.001))
                while armed:
                    value = mq.publish("t", Message(len(published))).value
                    published.append(value)
                    for message in mq.poll("g", "c", 5):
                        got.add(message.value)
                        mq.acknowledge("g", message)
                swallowed += 1
            except KeyboardInterrupt:
                pass
        mq.remove_consumer("g", "c")  # what an interrupt has torn from its reader's hands
        mq.add_consumer("g", "c")
        while batch := mq.poll("g", "c", 1000):
            got.update(message.value for message in batch)
            mq.commit("g", "c")
        lost = sorted(set(published) - got)
        restarts = [partition.restarts for partition in mq.get_topic_info("t").partitions]
        if lost or swallowed:
            print("seed", seed)
        print("lost", lost, "swallowed", swallowed, "restarts", restarts, mq.close().clean)
    """)
    assert (code, out, err) == (0, "lost [] swallowed 0 restarts [0, 0] True\n", "")


# Exit


ENDS = {
    "falls off the end": ("pass", 0),
    "sys.exit()": ("sys.exit()", 0),
    "sys.exit(3)": ("sys.exit(3)", 3),
    "an error": ("raise RuntimeError('uncaught')", 1),
}


@pytest.mark.parametrize(
    ("end", "busy"),
    [*((end, "idle") for end in ENDS), ("sys.exit(3)", "busy"), ("an error", "busy")],
)
def test_a_program_that_forgets_to_close_exits_at_once_with_its_own_code(end, busy):
    statement, expected = ENDS[end]
    work = """
        started = threading.Barrier(5)
        def publish():
            mq.publish("t", Message("v"))
        def consume():
            [message] = mq.poll("g", "c", 1, timeout=None)
            mq.acknowledge("g", message, success=False)
        def repeat(call):
            started.wait(10)
            try:
                while True:
                    call()
            except BrokerClosedError:
                pass
        for call in (publish, publish, consume, consume):
            threading.Thread(target=repeat, args=(call,), daemon=True).start()
        started.wait(10)
    """
    with start_python(
        "mq = new_broker()\nmq.poll('g', 'c', timeout=0.001)\n"
        + (dedent(work) if busy == "busy" else "")
        + "print('ending', flush=True)\n"
        + statement
    ) as child:
        assert child.stdout.readline() == "ending\n"
        start = time.monotonic()
        out, err = child.communicate(timeout=3 * WATCHDOG)
        took = time.monotonic() - start
    assert child.returncode == expected
    assert out == ""
    assert took < WATCHDOG / 2
    if end == "an error":
        assert err.startswith("Traceback")
        assert err.endswith("RuntimeError: uncaught\n")
        assert err.count("Traceback") == 1
    else:
        assert err == ""


def test_a_program_with_a_log_handler_exits_quietly():
    code, out, err = run_python("""
        import logging
        logging.basicConfig(level=logging.INFO, stream=sys.stdout)
        mq = new_broker()
        mq.publish("t", Message("v"))
        mq.poll("g", "c")
    """)
    assert (code, err) == (0, "")
    assert "broker.closed in_flight={'g': 1}" in out


def test_a_queue_collected_at_exit_does_not_disturb_it():
    code, out, err = run_python("""
        class Service:
            def __init__(self):
                self.mq = new_broker()
                self.me = self  # a cycle: only the collector can free it
        services = [Service() for _ in range(3)]
        services.pop()
        sys.exit(4)
    """)
    assert (code, out, err) == (4, "", "")
