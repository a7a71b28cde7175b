"""Pitfalls of completion: lost when a consumer crashes, confirmed for another, failed for ever."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from support import all_at_once

from dmq_actors import AckResult, DeadLetterHeader, Message


def values(messages):
    return [message.value for message in messages]


def group_on(mq, count, *consumers, partitions=1, **options):
    """Topic t with `count` messages, read by group g."""
    mq.create_topic("t", partitions)
    mq.create_consumer_group("g", "t", **options)
    for consumer in consumers:
        mq.add_consumer("g", consumer)
    mq.publish_many("t", [Message(at) for at in range(count)])


def fail_for_good(mq, message):
    """Nack a delivery until it is a dead letter."""
    outcomes = [mq.acknowledge("g", message, success=False, error="broken") for _ in range(3)]
    assert outcomes == [AckResult.RETRYING, AckResult.RETRYING, AckResult.DEAD_LETTERED]


def dead_letters(mq, topic="__dlq_t"):
    """All that stands in a dead-letter topic."""
    found = []
    for partition in range(mq.get_topic_info(topic).num_partitions):
        found += mq.partition_actor(topic, partition).read(0, 1_000).get(timeout=10)
    return found


# P31


def test_what_was_polled_and_not_completed_goes_to_the_next_consumer(mq):
    """P31, kafka-python 722 and others: delivered counted as consumed, a crash lost it."""
    group_on(mq, 1, "c1")
    [message] = mq.poll("g", "c1", 1)
    assert mq.get_consumer_lag("g") == {0: 1}
    assert mq.get_group_info("g").partitions[0].committed_offset == 0
    mq.remove_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    [again] = mq.poll("g", "c2", 1)
    assert again.message_id == message.message_id
    assert mq.get_consumer_lag("g") == {0: 1}


def test_an_at_most_once_group_commits_before_it_hands_out(mq):
    """P31, kafka-python 722 and others: where losing is what was asked for."""
    group_on(mq, 1, "c1", delivery="at_most_once")
    [message] = mq.poll("g", "c1", 1)
    assert mq.get_consumer_lag("g") == {0: 0}
    mq.acknowledge("g", message, success=False)
    mq.remove_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    assert mq.poll("g", "c2") == []


# P33


def test_the_ack_of_one_message_does_not_confirm_another(mq):
    """P33, persist-queue 89: a thread's task_done confirmed what another thread failed on."""
    group_on(mq, 2, "c1")
    [m0], [m1] = sorted(
        all_at_once([partial(mq.poll, "g", "c1", 1)] * 2), key=lambda batch: batch[0].offset
    )
    assert mq.acknowledge("g", m1) is AckResult.COMPLETED
    [partition] = mq.get_group_info("g").partitions
    assert (partition.committed_offset, partition.in_flight, partition.lag) == (0, 1, 2)
    mq.remove_consumer("g", "c1")  # the handler of m0 crashed
    mq.add_consumer("g", "c2")
    assert values(mq.poll("g", "c2", 10)) == [m0.value]


def test_the_ack_of_one_consumer_does_not_confirm_what_another_has(mq):
    """P33, persist-queue 89: two consumers, each with a partition."""
    group_on(mq, 2, "c1", "c2", partitions=2)
    [m0] = mq.poll("g", "c1", 1)
    [m1] = mq.poll("g", "c2", 1)
    mq.acknowledge("g", m1)
    mq.commit("g", "c2")
    assert mq.get_consumer_lag("g") == {0: 1, 1: 0}
    mq.remove_consumer("g", "c1")
    assert values(mq.poll("g", "c2", 10)) == [m0.value]


# P35


def test_the_next_owner_gets_all_that_a_removed_consumer_left_in_order(mq):
    """P35, redis 9745 and another: deleting a consumer threw away what it had pending."""
    group_on(mq, 10, "c1")
    delivered = mq.poll("g", "c1", 10)
    mq.acknowledge("g", delivered[0])
    mq.remove_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    again = mq.poll("g", "c2", 100)
    assert [message.offset for message in again] == list(range(1, 10))
    assert {message.delivery_attempt for message in again} == {2}
    assert mq.get_consumer_lag("g") == {0: 9}


def test_failures_are_remembered_when_their_consumer_leaves(mq):
    """P35, redis 9745 and another: attempts and failures belong to the group."""
    group_on(mq, 3, "c1")
    for _ in range(2):
        delivered = mq.poll("g", "c1", 10)
        assert mq.acknowledge("g", delivered[0], success=False) is AckResult.RETRYING
    mq.remove_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    again = mq.poll("g", "c2", 10)
    assert [(m.offset, m.delivery_attempt) for m in again] == [(0, 3), (1, 2), (2, 2)]
    assert mq.acknowledge("g", again[0], success=False) is AckResult.DEAD_LETTERED


# P37


def test_lost_deliveries_count_as_attempts_and_not_as_failures(mq):
    """P37, pulsar 5881: a message that kills its consumer took down one after another.

    It is visible in `delivery_attempt`, so that a consumer can put it aside; only a nack counts
    as a failure.
    """
    group_on(mq, 1)
    for attempt in range(1, 6):
        mq.add_consumer("g", f"c{attempt}")
        [message] = mq.poll("g", f"c{attempt}", 1)
        assert message.delivery_attempt == attempt
        mq.remove_consumer("g", f"c{attempt}")
    assert mq.list_topics() == ["t"]
    mq.add_consumer("g", "careful")
    [message] = mq.poll("g", "careful", 1)
    assert message.delivery_attempt == 6
    fail_for_good(mq, message)
    assert mq.get_consumer_lag("g") == {0: 0}


def test_an_operator_can_step_over_a_message_that_kills_its_consumers(mq):
    """P37, pulsar 5881: by a seek, or a commit of the offset after it."""
    group_on(mq, 2, "c1")
    mq.poll("g", "c1", 1)
    mq.remove_consumer("g", "c1")
    mq.add_consumer("g", "c2")
    mq.seek("g", 0, 1)
    assert values(mq.poll("g", "c2", 10)) == [1]
    mq.commit("g", "c2")
    assert mq.get_consumer_lag("g") == {0: 0}


# P39


def test_a_message_is_delivered_three_times_and_then_never_again(mq):
    """P39, dramatiq 605: more retries than were configured."""
    group_on(mq, 1, "c1")
    outcomes = []
    for attempt in (1, 2, 3):
        [message] = mq.poll("g", "c1", 10)
        assert message.delivery_attempt == attempt
        outcomes.append(mq.acknowledge("g", message, success=False))
    assert outcomes == [AckResult.RETRYING, AckResult.RETRYING, AckResult.DEAD_LETTERED]
    for _ in range(5):
        assert mq.poll("g", "c1", 10) == []
    assert values(dead_letters(mq)) == [0]
    assert mq.acknowledge("g", message, success=False) is AckResult.STALE
    assert mq.get_consumer_lag("g") == {0: 0}
    assert len(dead_letters(mq)) == 1


def test_nacks_of_one_delivery_count_each_and_the_third_makes_a_dead_letter(mq):
    """P39, dramatiq 605: the same delivery failed again and again, without a poll between."""
    group_on(mq, 1, "c1")
    [message] = mq.poll("g", "c1", 10)
    fail_for_good(mq, message)
    assert mq.acknowledge("g", message, success=False) is AckResult.STALE
    assert mq.poll("g", "c1", 10) == []
    assert values(dead_letters(mq)) == [0]


@pytest.mark.parametrize("_round", range(10))
def test_nacks_from_several_threads_make_exactly_one_dead_letter(mq, _round):
    """P39, dramatiq 605: the same delivery failed from five threads at the same moment."""
    group_on(mq, 1, "c1")
    [message] = mq.poll("g", "c1", 10)
    nack = partial(mq.acknowledge, "g", message, success=False)
    assert Counter(all_at_once([nack] * 5)) == {
        AckResult.RETRYING: 2,
        AckResult.DEAD_LETTERED: 1,
        AckResult.STALE: 2,
    }
    assert values(dead_letters(mq)) == [0]
    assert mq.get_group_info("g").dead_lettered_total == 1


def test_a_nack_of_an_older_delivery_is_stale(mq):
    """P39, dramatiq 605: the delivery is over as soon as the message was delivered again."""
    group_on(mq, 1, "c1")
    [first] = mq.poll("g", "c1", 10)
    mq.acknowledge("g", first, success=False)
    [second] = mq.poll("g", "c1", 10)
    for _ in range(5):
        assert mq.acknowledge("g", first, success=False) is AckResult.STALE
        assert mq.acknowledge("g", first, success=True) is AckResult.STALE
    assert mq.acknowledge("g", second) is AckResult.COMPLETED


def test_failing_after_success_does_not_bring_a_message_back(mq):
    """P39, dramatiq 605: completed is completed."""
    group_on(mq, 1, "c1")
    [message] = mq.poll("g", "c1", 10)
    assert mq.acknowledge("g", message) is AckResult.COMPLETED
    for _ in range(4):
        assert mq.acknowledge("g", message, success=False) is AckResult.STALE
    assert mq.poll("g", "c1", 10) == []
    assert mq.list_topics() == ["t"]
    assert mq.get_consumer_lag("g") == {0: 0}


# P41


def test_a_dead_letter_keeps_key_value_and_headers_and_tells_its_story(manual_mq, clock):
    """P41, quarkus 20537 and another: headers vanished on the way to the dead letters."""
    mq = manual_mq
    group_on(mq, 0, "c1", partitions=3)
    stored = mq.publish("t", Message(b"v", key=b"k", headers={"trace": b"1", "none": None}))
    for at in range(3):
        clock.advance(10)
        [message] = mq.poll("g", "c1")
        mq.acknowledge("g", message, success=False, error=ValueError(f"failure {at}"))
    [letter] = dead_letters(mq)
    assert (letter.value, letter.key, letter.partition) == (b"v", b"k", stored.partition)
    assert letter.headers == {
        "trace": b"1",
        "none": None,
        DeadLetterHeader.TOPIC: "t",
        DeadLetterHeader.PARTITION: str(stored.partition),
        DeadLetterHeader.OFFSET: str(stored.offset),
        DeadLetterHeader.MESSAGE_ID: stored.message_id,
        DeadLetterHeader.TIMESTAMP: repr(stored.timestamp),
        DeadLetterHeader.GROUP: "g",
        DeadLetterHeader.FAILURES: "3",
        DeadLetterHeader.ERROR: "ValueError: failure 2",
        DeadLetterHeader.FIRST_FAILED: repr(stored.timestamp + 10),
        DeadLetterHeader.LAST_FAILED: repr(stored.timestamp + 30),
    }


@pytest.mark.parametrize("how", ["redrive", "publish by hand"])
def test_a_redriven_message_starts_anew_and_can_become_a_dead_letter_again(mq, how):
    """P41, quarkus 20537 and another: retry counters came back with the message."""
    group_on(mq, 0, "c1")
    mq.publish("t", Message(b"v", key=b"k", headers={"trace": b"1"}))
    [message] = mq.poll("g", "c1")
    fail_for_good(mq, message)
    if how == "redrive":
        assert len(mq.redrive("t")) == 1
    else:
        mq.publish("t", dead_letters(mq)[0])
    [again] = mq.poll("g", "c1")
    assert (again.value, again.key, again.headers["trace"]) == (b"v", b"k", b"1")
    assert (again.delivery_attempt, again.offset) == (1, 1)
    if how == "redrive":
        assert again.headers == {"trace": b"1"}
    fail_for_good(mq, again)
    assert mq.list_topics() == ["t", "__dlq_t"]
    assert [letter.headers[DeadLetterHeader.OFFSET] for letter in dead_letters(mq)] == ["0", "1"]


def test_a_group_on_a_dead_letter_topic_makes_no_further_dead_letter_topic(mq):
    """P41, quarkus 20537 and another: dead letters of dead letters of dead letters."""
    group_on(mq, 1, "c1")
    [message] = mq.poll("g", "c1")
    fail_for_good(mq, message)
    mq.create_consumer_group("morgue", "__dlq_t")
    mq.add_consumer("morgue", "c1")
    for attempt in (1, 2, 3):
        [letter] = mq.poll("morgue", "c1")
        assert letter.delivery_attempt == attempt
        mq.acknowledge("morgue", letter, success=False)
    assert mq.poll("morgue", "c1") == []
    assert mq.get_consumer_lag("morgue") == {0: 0}
    assert mq.list_topics() == ["t", "__dlq_t"]
    assert values(dead_letters(mq)) == [0]
