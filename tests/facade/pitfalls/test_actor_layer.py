"""Pitfalls of the actor layer: deadlocks, dead actors, answers that never come."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial

import pytest
from support import WATCHDOG, Crew

from dmq_actors import (
    BlockingInActorError,
    BrokerClosedError,
    Message,
    MessageQueue,
    UnknownGroupError,
    UnknownTopicError,
    events,
)

DELETE_BOUND = 5.0


def logged(caplog, event):
    """The data of every log record of this event."""
    found = [getattr(record, "dmq", {}) for record in caplog.records]
    return [data for data in found if data.get("event") == event]


# P01


def publish_until_deleted(mq, busy):
    mq.publish("t", Message("first"))
    busy.wait(WATCHDOG)
    with suppress(UnknownTopicError):
        while mq.publish("t", Message("next")):
            pass


def fail_until_deleted(mq, busy):
    batch = mq.poll("g", "c1", 1, timeout=WATCHDOG)
    busy.wait(WATCHDOG)
    with suppress(UnknownGroupError):
        while True:
            for message in batch:
                for _ in range(3):
                    mq.acknowledge("g", message, success=False)
            batch = mq.poll("g", "c1", 5)


def delete_when_busy(mq, busy):
    busy.wait(WATCHDOG)
    mq.coordinator.delete_topic("t").get(timeout=DELETE_BOUND)


def test_deleting_a_busy_topic_ends_in_time_and_leaves_nobody_hanging(mq):
    """P01, pykka 76: a stop that waits for an actor that waits for the one who stops it.

    The coordinator stops partitions while their messages are on the way to the dead letters,
    which go through the coordinator.
    """
    for _ in range(8):
        mq.create_topic("t", 2)
        mq.create_consumer_group("g", "t")
        mq.add_consumer("g", "c1")
        busy = threading.Barrier(6)
        with Crew() as crew:
            for _ in range(4):
                crew.start(publish_until_deleted, mq, busy)
            crew.start(fail_until_deleted, mq, busy)
            crew.start(delete_when_busy, mq, busy)
        assert set(mq.list_topics()) <= {"__dlq_t"}
        assert mq.list_consumer_groups() == []
        for left in mq.list_topics():
            mq.delete_topic(left)


def outcome_in_an_actor(mq, call):
    """Run `call` in the thread of an actor; what it returned or raised."""
    outcome = []
    done = threading.Event()

    def run(_promise):
        try:
            outcome.append(call())
        except BaseException as error:  # for the caller
            outcome.append(error)
        finally:
            done.set()

    waiting = mq.group_actor("g").poll("c1", 1, None)
    waiting.add_done_callback(run)
    mq.publish("t", Message("wake up"))
    assert done.wait(WATCHDOG), "it hangs"
    return outcome[0]


@pytest.mark.parametrize("what", ["call", "poll", "stop itself", "stop another"])
def test_waiting_in_the_thread_of_an_actor_raises_instead_of_hanging(mq, what):
    """P01, pykka 76: a wait for an answer that only the waiting actor itself could give."""
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    blocking = {
        "call": mq.list_topics,
        "poll": partial(mq.poll, "g", "c1", timeout=None),
        "stop itself": mq.group_actor("g").actor_ref.stop,
        "stop another": mq.coordinator.actor_ref.stop,
    }
    assert isinstance(outcome_in_an_actor(mq, blocking[what]), BlockingInActorError)
    assert mq.list_topics() == ["t"]


# P03


def test_a_stopped_partition_goes_on_with_its_log_and_says_that_it_was_restarted(mq, caplog):
    """P03, pykka 42 and 70: nobody notices that the receiver has died, and messages are lost."""
    caplog.set_level("INFO", "dmq_actors")
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    first = mq.publish("t", Message("m0"))
    before = mq.partition_actor("t", 0)

    assert before.actor_ref.stop(timeout=WATCHDOG) is True

    second = mq.publish("t", Message("m1"))
    assert (first.offset, second.offset) == (0, 1)
    assert [m.value for m in mq.poll("g", "c1", 10)] == ["m0", "m1"]
    [info] = mq.get_topic_info("t").partitions
    assert (info.restarts, info.base_offset, info.next_offset) == (1, 0, 2)
    [event] = logged(caplog, events.ACTOR_RESTARTED)
    assert event["actor"] == "partition-t-0"
    assert [m.value for m in before.read(0).get(timeout=WATCHDOG)] == ["m0", "m1"]


def test_a_poll_that_waits_at_a_stopped_partition_still_gets_the_next_message(mq):
    """P03, pykka 42 and 70: who waits for a dead partition must not wait for ever."""
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    waiting = mq.group_actor("g").poll("c1", timeout=None)
    mq.get_group_info("g")  # behind the poll, and its fetch, in the mailboxes of both actors

    mq.partition_actor("t", 0).actor_ref.stop(timeout=WATCHDOG)
    mq.publish("t", Message("m0"))

    assert [m.value for m in waiting.get(timeout=WATCHDOG)] == ["m0"]


# P05


def test_the_failure_of_one_group_does_not_reach_another_group_or_the_publisher(mq, caplog):
    """P05, mopidy 1750: one dead receiver broke the loop that told all the others."""
    caplog.set_level("INFO", "dmq_actors")
    mq.create_topic("t", 1)
    for group in ("g1", "g2"):
        mq.create_consumer_group(group, "t")
        mq.add_consumer(group, "c")
    waiting = {group: mq.group_actor(group).poll("c", 1, None) for group in ("g1", "g2")}

    mq.group_actor("g1").actor_ref.stop(timeout=WATCHDOG)
    mq.publish("t", Message("m"))

    for promise in waiting.values():
        assert [m.value for m in promise.get(timeout=WATCHDOG)] == ["m"]
    restarts = {group: mq.get_group_info(group).restarts for group in ("g1", "g2")}
    assert restarts == {"g1": 1, "g2": 0}
    assert [event["actor"] for event in logged(caplog, events.ACTOR_RESTARTED)] == ["group-g1"]


def test_removing_the_last_consumer_of_a_group_in_mid_publish_hurts_no_other_group(mq):
    """P05, mopidy 1750: a receiver that leaves while the others are being told."""
    mq.create_topic("t", 1)
    for group in ("g1", "g2"):
        mq.create_consumer_group(group, "t")
    mq.add_consumer("g2", "c2")
    count = 200

    def publish():
        for at in range(count):
            mq.publish("t", Message(at))

    def come_and_go():
        for _ in range(100):
            mq.add_consumer("g1", "c1")
            mq.group_actor("g1").poll("c1", 1, None)
            mq.remove_consumer("g1", "c1")

    with Crew() as crew:
        crew.start(publish)
        crew.start(come_and_go)
    assert [m.value for m in mq.poll("g2", "c2", count)] == list(range(count))


# P07


def test_every_call_in_progress_ends_when_the_broker_is_closed():
    """P07, pykka 23 and 46: messages left in the inbox of a stopped actor were never answered."""
    for _ in range(5):
        with MessageQueue(call_timeout=WATCHDOG) as mq:
            mq.create_topic("t", 4)
            mq.create_consumer_group("g", "t")
            accepted, polled, ends = [], [], []
            started = threading.Barrier(17)

            def work(consumer, mq=mq, sinks=(accepted, polled, ends), started=started):
                accepted, polled, ends = sinks
                mq.add_consumer("g", consumer)
                started.wait(WATCHDOG)
                try:
                    while True:
                        stored = mq.publish("t", Message(consumer))
                        accepted.append((stored.partition, stored.offset))
                        polled += mq.poll("g", consumer, 10)
                except BrokerClosedError as end:
                    ends.append(end)

            with Crew() as crew:
                for number in range(16):
                    crew.start(work, f"c{number}")
                started.wait(WATCHDOG)
                for _ in range(20):
                    mq.publish("t", Message("main"))
                report = mq.close(timeout=5.0)
            assert report.clean
            assert len(ends) == 16
            assert len(accepted) == len(set(accepted))
            assert report.in_flight.get("g", 0) == len(polled)


def test_what_was_accepted_before_the_close_is_stored_and_answered():
    """P07, pykka 23 and 46: promises taken before the end are kept, those after it refused."""
    with MessageQueue(call_timeout=WATCHDOG) as mq:
        mq.create_topic("t", 3)
        coordinator = mq.coordinator
        promises = [coordinator.publish("t", Message(at)) for at in range(3_000)]
        assert mq.close().clean
        stored = [promise.get(timeout=WATCHDOG) for promise in promises]
    assert [m.value for m in stored] == list(range(3_000))
    assert sorted((m.partition, m.offset) for m in stored) == [
        (partition, offset) for partition in range(3) for offset in range(1_000)
    ]
    with pytest.raises(BrokerClosedError):
        coordinator.list_topics().get(timeout=WATCHDOG)
