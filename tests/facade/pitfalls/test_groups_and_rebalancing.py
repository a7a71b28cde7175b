"""Pitfalls of groups: rebalances that deadlock, repeat, or leave two owners or none."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
from support import WATCHDOG, Crew, all_at_once

from dmq_actors import (
    AckResult,
    ConsumerExistsError,
    Message,
    StaleAssignmentError,
    UnknownConsumerError,
    events,
)


def values(messages):
    return [message.value for message in messages]


def logged(caplog, event):
    """The data of every log record of this event."""
    found = [getattr(record, "dmq", {}) for record in caplog.records]
    return [data for data in found if data.get("event") == event]


# P09


def test_rebalances_and_questions_from_all_sides_never_wait_for_each_other(mq):
    """P09, kafkaflow 735: a rebalance waited for what waited for the rebalance."""
    mq.create_topic("t", 4)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    over = threading.Event()
    took: dict[str, list[float]] = {}

    def repeat(name, call):
        times = took[name] = []
        while not over.is_set():
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)

    def rebalance():
        times = took["rebalance"] = []
        for at in range(500):
            start = time.perf_counter()
            mq.add_consumer("g", "c2")
            mq.publish("t", Message(at))
            mq.remove_consumer("g", "c2")
            times.append(time.perf_counter() - start)
        over.set()

    with Crew(timeout=4 * WATCHDOG) as crew:
        crew.start(repeat, "poll", partial(mq.poll, "g", "c1", 10))
        crew.start(repeat, "commit", partial(mq.commit, "g", "c1"))
        crew.start(repeat, "lag", partial(mq.get_consumer_lag, "g"))
        crew.start(repeat, "info", partial(mq.get_topic_info, "t"))
        crew.start(rebalance)
    for name, times in took.items():
        times.sort()
        assert times, name
        assert times[int(len(times) * 0.99)] < 1.0, f"{name}: p99 is {times[-1]:.2f} s"
    assert mq.get_group_info("g").generation == 1001


# P11


def test_only_a_change_of_membership_makes_a_new_generation(mq):
    """P11, librdkafka 4059: a commit during a rebalance set off the next rebalance."""
    mq.create_topic("t", 4)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.publish_many("t", [Message(at, key=str(at)) for at in range(2_000)])
    before = mq.get_group_info("g").generation
    over = threading.Event()

    def consume():
        while not over.is_set():
            for message in mq.poll("g", "c1", 3):
                outcome = mq.acknowledge("g", message, success=message.offset % 5 > 0)
                assert outcome in set(AckResult)
            mq.commit("g", "c1")
            mq.get_consumer_lag("g")

    def join():
        for _ in range(20):
            mq.get_group_info("g")
        mq.add_consumer("g", "c2")
        for _ in range(20):
            mq.get_group_info("g")
        over.set()

    with Crew() as crew:
        for _ in range(4):
            crew.start(consume)
        crew.start(join)
    assert mq.get_group_info("g").generation == before + 1


# P13


@pytest.mark.parametrize("waited_for", [True, False], ids=["awaited", "not awaited"])
def test_acknowledgements_before_a_leave_are_not_delivered_to_the_next_owner(mq, waited_for):
    """P13, kafka-pixy 62: the last offset was still on its way when the partition moved."""
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.publish_many("t", [Message(at) for at in range(10)])
    group = mq.group_actor("g")
    for message in mq.poll("g", "c1", 10):
        if waited_for:
            assert mq.acknowledge("g", message, success=True) is AckResult.COMPLETED
        else:
            group.acknowledge(message)
    mq.remove_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    assert mq.poll("g", "c2", 100) == []
    assert mq.get_consumer_lag("g") == {0: 0, 1: 0}


def test_a_commit_that_nobody_waited_for_counts_before_the_leave_that_follows_it(mq):
    """P13, kafka-pixy 62: the same for a commit."""
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.publish_many("t", [Message(at) for at in range(10)])
    assert len(mq.poll("g", "c1", 10)) == 10
    mq.group_actor("g").commit.defer("c1")
    mq.remove_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    assert mq.poll("g", "c2", 100) == []


# P15


def test_a_removed_consumer_never_gets_another_message(mq):
    """P15, kafka-python 1547: who had fallen out of the group went on consuming."""
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t")
    for _ in range(10):
        mq.add_consumer("g", "c1")
        removed = threading.Event()
        polling = threading.Event()
        after: list[object] = []

        def poll(removed=removed, polling=polling, after=after):
            rounds = 0
            while rounds < 50:
                late = removed.is_set()
                got = mq.poll("g", "c1", 1)
                polling.set()
                if late:
                    rounds += 1
                    after.extend(got)

        with Crew() as crew:
            crew.start(poll)
            assert polling.wait(WATCHDOG)
            mq.remove_consumer("g", "c1")
            removed.set()
            mq.add_consumer("g", "c2")
            mq.publish_many("t", [Message(at) for at in range(100)])
            assert sorted(values(mq.poll("g", "c2", 200))) == list(range(100))
        assert after == []
        mq.commit("g", "c2")
        mq.remove_consumer("g", "c2")


def test_the_poll_of_a_consumer_that_is_removed_while_it_waits_ends_with_nothing(mq):
    """P15, kafka-python 1547: here the poll is in progress when its consumer goes."""
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.add_consumer("g", "idle")
    waiting = [mq.group_actor("g").poll(name, timeout=None) for name in ("c1", "c1", "idle")]
    mq.remove_consumer("g", "idle")
    mq.remove_consumer("g", "c1")
    mq.publish("t", Message("too late"))
    assert [promise.get(timeout=WATCHDOG) for promise in waiting] == [[], [], []]


def test_a_removed_consumer_can_neither_commit_nor_complete_what_it_had(mq):
    """P15, kafka-python 1547: what it had in flight belongs to the next owner."""
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.publish("t", Message("m"))
    [late] = mq.poll("g", "c1")
    mq.remove_consumer("g", "c1")
    assert mq.acknowledge("g", late) is AckResult.STALE
    for offsets in (None, {0: 1}):
        with pytest.raises(UnknownConsumerError) as refused:
            mq.commit("g", "c1", offsets)
        assert isinstance(refused.value, StaleAssignmentError)
    mq.add_consumer("g", "c2")
    assert mq.acknowledge("g", late, success=False) is AckResult.STALE
    [again] = mq.poll("g", "c2")
    assert (again.value, again.delivery_attempt) == ("m", 2)


def test_polls_of_an_unknown_consumer_are_logged_once_a_minute(manual_mq, clock, caplog):
    """P15, kafka-python 1547: the removed one is told of in the log, but not flooded."""
    caplog.set_level("WARNING", "dmq_actors")
    manual_mq.create_topic("t")
    manual_mq.create_consumer_group("g", "t")
    for _ in range(3):
        assert [manual_mq.poll("g", "ghost", timeout=5) for _ in range(20)] == [[]] * 20
        clock.advance(60)
    told = logged(caplog, events.CONSUMER_UNKNOWN)
    assert [(data["group"], data["consumer"]) for data in told] == [("g", "ghost")] * 3


# P17


def test_idle_members_stay_and_one_takes_over_at_once(mq):
    """P17, aiokafka 720 and others: more members than partitions, and the idle are forgotten."""
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    for consumer in ("c1", "c2", "c3"):
        assignment = mq.add_consumer("g", consumer)
    assert assignment == {"c1": [0], "c2": [], "c3": []}
    for _ in range(100):
        assert mq.poll("g", "c2") == []
        assert mq.poll("g", "c3") == []
    assert mq.get_group_info("g").generation == 3

    assert mq.remove_consumer("g", "c1") == {"c2": [0], "c3": []}
    mq.publish("t", Message("m"))
    assert (mq.poll("g", "c3"), values(mq.poll("g", "c2"))) == ([], ["m"])
    assert mq.get_group_info("g").generation == 4


def test_an_idle_member_that_waits_is_woken_with_what_the_old_owner_left(mq):
    """P17, aiokafka 720 and others: the idle one takes over without polling anew."""
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    mq.publish("t", Message("m"))
    assert values(mq.poll("g", "c1")) == ["m"]
    waiting = mq.group_actor("g").poll("c2", timeout=None)
    mq.remove_consumer("g", "c1")
    assert values(waiting.get(timeout=WATCHDOG)) == ["m"]


def test_a_member_that_was_idle_for_long_is_still_a_member(manual_mq, clock):
    """P17, aiokafka 720 and others: no heartbeat is missed by just waiting."""
    manual_mq.create_topic("t", 1)
    manual_mq.create_consumer_group("g", "t")
    manual_mq.add_consumer("g", "c1")
    manual_mq.add_consumer("g", "c2")
    clock.advance(30 * 86_400)
    assert manual_mq.get_group_info("g").members == ("c1", "c2")
    assert manual_mq.remove_consumer("g", "c1") == {"c2": [0]}


# P19


def test_of_two_that_join_with_one_id_at_the_same_moment_exactly_one_joins(mq):
    """P19, librdkafka 2635: two members of one id; here the first one stays."""
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t")
    for _ in range(50):
        outcomes = all_at_once([partial(mq.add_consumer, "g", "c1")] * 2)
        joined = [outcome for outcome in outcomes if isinstance(outcome, dict)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, ConsumerExistsError)]
        assert (joined, len(refused)) == ([{"c1": [0, 1]}], 1)
        assert "'c1'" in str(refused[0])
        mq.remove_consumer("g", "c1")


def test_two_threads_that_poll_as_one_consumer_never_get_the_same_message(mq):
    """P19, librdkafka 2635: one id, two threads, no message twice and none lost."""
    mq.create_topic("t", 2)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.publish_many("t", [Message(at) for at in range(1_000)])

    def poll_all():
        got = []
        while batch := mq.poll("g", "c1", 7):
            got += values(batch)
        return got

    first, second = all_at_once([poll_all, poll_all])
    assert sorted(first + second) == list(range(1_000))
