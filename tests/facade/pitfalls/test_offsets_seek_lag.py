"""Pitfalls of offsets: off by one, swapped constants, positions that move behind one's back."""

from __future__ import annotations

import threading

import pytest
from support import WATCHDOG, Crew

from dmq_actors import (
    BEGINNING,
    END,
    DMQError,
    InvalidOffsetError,
    InvalidTypeError,
    Message,
)


def values(messages):
    return [message.value for message in messages]


def one_partition(mq, count, **topic_options):
    """Topic t with `count` messages, read by c1 of group g."""
    mq.create_topic("t", 1, **topic_options)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.publish_many("t", [Message(at) for at in range(count)])


# P21


@pytest.mark.parametrize("by", ["message", "offset", "all delivered"])
def test_after_a_commit_the_next_owner_starts_behind_the_last_processed_message(mq, by):
    """P21, librdkafka 1811 and others: committing the last offset, not the one after it."""
    one_partition(mq, 4)
    delivered = mq.poll("g", "c1", 2)
    if by == "message":
        for message in delivered:
            mq.acknowledge("g", message)
    elif by == "offset":
        assert mq.commit("g", "c1", {0: delivered[-1].offset + 1}) == {0: 2}
    else:
        assert mq.commit("g", "c1") == {0: 2}
    assert mq.get_group_info("g").partitions[0].committed_offset == 2
    mq.remove_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    assert values(mq.poll("g", "c2", 10)) == [2, 3]


@pytest.mark.parametrize("by", ["message", "offset", "all delivered"])
def test_the_lag_after_completing_everything_is_zero_and_not_one(mq, by):
    """P21, librdkafka 1811 and others: the same fault, seen in the lag."""
    one_partition(mq, 4)
    delivered = mq.poll("g", "c1", 10)
    if by == "message":
        for message in delivered:
            mq.acknowledge("g", message)
    else:
        mq.commit("g", "c1", {0: 4} if by == "offset" else None)
    assert mq.get_consumer_lag("g") == {0: 0}
    assert mq.get_group_info("g").partitions[0].committed_offset == 4


# P23


def test_lag_does_not_count_what_retention_has_removed(manual_mq, clock):
    """P23, redpanda 30624: an empty log, and a lag of millions behind an old commit."""
    one_partition(manual_mq, 100, retention_seconds=60)
    manual_mq.poll("g", "c1", 10)
    manual_mq.commit("g", "c1")
    assert manual_mq.get_consumer_lag("g") == {0: 90}
    clock.advance(61)
    assert manual_mq.get_consumer_lag("g") == {0: 0}
    [partition] = manual_mq.get_topic_info("t").partitions
    assert (partition.base_offset, partition.next_offset) == (100, 100)
    assert manual_mq.get_group_info("g").lag == 0


def test_lag_counts_from_the_first_message_that_is_still_there(mq):
    """P23, redpanda 30624: here a part of the log is left."""
    mq.create_topic("t", 1, retention_count=30)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.publish_many("t", [Message(at) for at in range(20)])
    mq.poll("g", "c1", 10)
    mq.commit("g", "c1")
    mq.publish_many("t", [Message(at) for at in range(20, 100)])
    assert mq.get_consumer_lag("g") == {0: 30}
    assert values(mq.poll("g", "c1", 100)) == list(range(70, 100))


# P25


def test_minus_one_is_the_beginning_and_minus_two_is_the_end(mq):
    """P25, pykafka 247: which of the two is earliest? Here not as in Kafka's clients."""
    assert (BEGINNING, END) == (-1, -2)
    one_partition(mq, 10)
    mq.poll("g", "c1", 10)
    mq.commit("g", "c1")
    assert mq.seek("g", 0, -1) == 0
    assert values(mq.poll("g", "c1", 100)) == list(range(10))
    assert mq.seek("g", 0, -2) == 10
    mq.publish("t", Message("x"))
    assert values(mq.poll("g", "c1", 100)) == ["x"]


def test_the_beginning_is_where_the_log_starts_now_and_not_zero(mq):
    """P25, pykafka 247: after retention the beginning has another number."""
    one_partition(mq, 10, retention_count=4)
    assert mq.seek("g", 0, BEGINNING) == 6
    assert values(mq.poll("g", "c1", 100)) == [6, 7, 8, 9]


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (-3, ValueError),
        (-1001, ValueError),
        (-(10**30), ValueError),
        (True, InvalidTypeError),
        (False, InvalidTypeError),
        (2.0, InvalidTypeError),
        (float("nan"), InvalidTypeError),
        ("2", InvalidTypeError),
        (b"2", InvalidTypeError),
        ([2], InvalidTypeError),
        (None, InvalidTypeError),
        (11, InvalidOffsetError),
        (10**30, InvalidOffsetError),
    ],
    ids=repr,
)
def test_any_other_seek_that_is_no_offset_of_the_log_is_refused(mq, offset, error):
    """P25, pykafka 247: -1001, True and 2.0 are no offsets, and a refused seek moves nothing."""
    one_partition(mq, 10)
    mq.poll("g", "c1", 5)
    before = mq.get_group_info("g")
    with pytest.raises(error) as refused:
        mq.seek("g", 0, offset)
    assert isinstance(refused.value, DMQError)
    assert isinstance(refused.value, ValueError)
    assert mq.get_group_info("g") == before
    assert values(mq.poll("g", "c1", 100)) == [5, 6, 7, 8, 9]


def test_a_seek_outside_of_what_is_retained_names_both_ends(mq):
    """P25, pykafka 247: the message says what would have been right."""
    one_partition(mq, 10, retention_count=4)
    for offset in (5, 11):
        with pytest.raises(InvalidOffsetError, match=rf"\b{offset}\b.*\b6\b.*\b10\b"):
            mq.seek("g", 0, offset)


# P27


def test_after_a_seek_nothing_from_before_it_is_delivered(mq):
    """P27, kafka-python 1214: the poll after seek(100) answered with offset 80."""
    for _ in range(10):
        one_partition(mq, 200)
        sought = threading.Event()
        polled_some = threading.Event()
        offsets: list[int] = []
        first_after_seek: list[int] = []

        def poll(
            sought=sought, polled=polled_some, offsets=offsets, first_after_seek=first_after_seek
        ):
            while True:
                late = sought.is_set()
                batch = mq.poll("g", "c1", 1)
                if late and not batch:
                    return
                offsets.extend(message.offset for message in batch)
                if late and not first_after_seek:
                    first_after_seek.append(len(offsets) - 1)
                if len(offsets) >= 20:
                    polled.set()

        with Crew() as crew:
            crew.start(poll)
            assert polled_some.wait(WATCHDOG)
            assert mq.seek("g", 0, 100) == 100
            sought.set()
        read_before = len(offsets) - 100
        assert offsets == [*range(read_before), *range(100, 200)]
        # None, if all was read between the seek and the moment that this thread heard of it.
        assert all(place >= read_before for place in first_after_seek)
        mq.delete_topic("t")


def test_a_fetch_that_is_under_way_while_the_position_moves_is_thrown_away(mq):
    """P27, kafka-python 1214: poll and seek are sent at once, without waiting for each other."""
    for _ in range(50):
        one_partition(mq, 200)
        group = mq.group_actor("g")
        early = group.poll("c1", 10)
        moved = group.seek(0, 100)
        late = group.poll("c1", 10)
        assert moved.get(timeout=WATCHDOG) == 100
        first = [message.offset for message in early.get(timeout=WATCHDOG)]
        second = [message.offset for message in late.get(timeout=WATCHDOG)]
        # Each is answered from before the seek or from after it, never across it.
        third = [message.offset for message in mq.poll("g", "c1", 1)]
        all_read = first + second + third
        from_seek = [offset for offset in all_read if offset >= 100]
        assert from_seek == list(range(100, 100 + len(from_seek)))
        assert all_read == [*range(len(all_read) - len(from_seek)), *from_seek]
        assert third == [from_seek[-1]]
        mq.delete_topic("t")


def test_a_waiting_poll_is_woken_by_a_seek_and_starts_there(mq):
    """P27, kafka-python 1214: here the poll waits at the end when the position moves back."""
    one_partition(mq, 200)
    mq.poll("g", "c1", 200)
    waiting = mq.group_actor("g").poll("c1", 3, None)
    mq.seek("g", 0, 100)
    assert values(waiting.get(timeout=WATCHDOG)) == [100, 101, 102]


# P29


def test_a_group_gets_what_was_published_before_its_first_consumer_joined(mq):
    """P29, ruby-kafka 215 and others: what came before the first assignment was lost."""
    mq.create_topic("t")
    mq.publish("t", Message("before the group"))
    mq.create_consumer_group("g", "t")
    mq.publish("t", Message("before the consumer"))
    mq.add_consumer("g", "c1")
    assert values(mq.poll("g", "c1")) == ["before the group", "before the consumer"]


def test_where_a_latest_group_starts_is_fixed_when_it_is_created(mq):
    """P29, ruby-kafka 215 and others: 'latest' resolved at the first poll loses messages."""
    mq.create_topic("t")
    mq.publish("t", Message("old"))
    mq.create_consumer_group("g", "t", start_from="latest")
    mq.publish("t", Message("new"))
    assert mq.get_consumer_lag("g") == {0: 1}
    mq.add_consumer("g", "c1")
    assert values(mq.poll("g", "c1")) == ["new"]


def test_the_end_is_resolved_once_and_not_at_each_empty_poll(mq):
    """P29, ruby-kafka 215 and others: what came between two polls was skipped."""
    one_partition(mq, 1)
    mq.seek("g", 0, END)
    assert mq.poll("g", "c1") == []
    mq.publish("t", Message("m2"))
    assert values(mq.poll("g", "c1")) == ["m2"]
    mq.seek("g", 0, END)
    for at in range(5):
        mq.publish("t", Message(at))
        assert values(mq.poll("g", "c1")) == [at]
        assert mq.poll("g", "c1") == []
