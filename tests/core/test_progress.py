"""What completes a message, and what does not: the header of ``progress.py``, arrow by arrow.

All go the way the actors go: plan, fetch, deliver, and then acknowledge, commit, nack and so on.
"""

from __future__ import annotations

import pytest
from core_support import (
    ALO,
    AMO,
    COMPLETED,
    DEAD_LETTERED,
    INCARNATION,
    RETRYING,
    STALE,
    WALL,
    Reading,
    buried_reading,
    every_delivery,
    marks,
    offsets,
    reading,
    tracked,
)

from dmq_actors import (
    InvalidOffsetError,
    StaleAssignmentError,
    UnknownConsumerError,
    UnknownPartitionError,
)
from dmq_actors._core.handout import Handout, Piece, stamp
from dmq_actors._core.progress import Progress

# ahead → in flight


@every_delivery
def test_messages_are_delivered_in_offset_order_up_to_the_room_given(delivery):
    r = reading(5, delivery=delivery)
    assert offsets(r.poll(room=2)) == [0, 1]
    assert offsets(r.poll(room=2)) == [2, 3]
    assert offsets(r.poll(room=2)) == [4]
    assert r.poll() == []


@tracked
def test_reading_moves_the_position_and_completes_nothing(delivery):
    r = reading(5, delivery=delivery)
    r.poll(room=3)
    assert marks(r) == (0, 3)
    assert r.lag() == 5


def test_an_at_most_once_group_commits_what_it_hands_out_before_it_hands_it_out():
    r = reading(5, delivery=AMO)
    r.poll(room=3)
    assert marks(r) == (3, 3)
    assert r.lag() == 2
    assert r.progress.in_flight.total == 0


@every_delivery
def test_a_delivery_tells_which_one_it_is(delivery):
    r = reading(1, delivery=delivery)
    [message] = r.poll()
    assert (message.generation, message.delivery_attempt) == (1, 1)
    assert message.group_incarnation == INCARNATION


@every_delivery
def test_messages_published_later_are_found_by_the_next_poll(delivery):
    r = reading(1, delivery=delivery)
    r.poll()
    assert r.poll() == []
    r.publish("late")
    assert offsets(r.poll()) == [1]


@every_delivery
def test_a_group_that_starts_later_reads_from_there(delivery):
    r = Reading(delivery=delivery, start=[3])
    r.publish(*range(5))
    assert marks(r) == (3, 3)
    assert offsets(r.poll()) == [3, 4]


def test_nothing_is_planned_for_one_who_is_no_member():
    r = reading(1)
    assert r.group.plan("stranger", 10, 0.0) == {}


def test_each_poll_starts_with_another_partition_so_that_none_starves():
    r = Reading(partitions=3)
    for partition in range(3):
        r.publish(*range(20), partition=partition)
    assert [r.poll(room=2)[0].partition for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_a_poll_fills_its_room_from_all_partitions_of_its_consumer():
    r = Reading(partitions=3)
    for partition in range(3):
        r.publish(1, 2, partition=partition)
    found = r.poll(room=5)
    assert [(m.partition, m.offset) for m in found] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]


def test_what_is_not_fetched_because_the_room_is_full_is_delivered_by_the_next_poll():
    r = Reading(partitions=2)
    r.publish("a", partition=0)
    r.publish("b", "c", partition=1)
    found = r.poll(room=1) + r.poll(room=1) + r.poll(room=1)
    assert sorted(m.value for m in found) == ["a", "b", "c"]


# in flight → completed, by acknowledgement


@tracked
def test_an_acknowledged_message_is_completed(delivery):
    r = reading(2, delivery=delivery)
    first, _ = r.poll()
    assert r.ack(first) == [COMPLETED]
    assert marks(r) == (1, 2)
    assert r.lag() == 1


@tracked
def test_acknowledgements_out_of_order_never_jump_a_gap(delivery):
    r = reading(5, delivery=delivery)
    m = r.poll()
    r.ack(m[1], m[3])
    assert marks(r) == (0, 5)
    r.ack(m[0])
    assert marks(r) == (2, 5)
    r.ack(m[2])
    assert marks(r) == (4, 5)
    r.ack(m[4])
    assert marks(r) == (5, 5)


@tracked
def test_an_acknowledgement_counts_once(delivery):
    r = reading(2, delivery=delivery)
    first, _ = r.poll()
    assert r.ack(first, first) == [COMPLETED, STALE]
    assert marks(r) == (1, 2)


def test_in_an_at_most_once_group_an_acknowledgement_changes_nothing_and_is_no_error():
    r = reading(2, delivery=AMO)
    first, second = r.poll()
    assert r.ack(first, first) == [COMPLETED, COMPLETED]
    assert r.nack(second) is COMPLETED
    assert marks(r) == (2, 2)
    assert r.poll() == []


@every_delivery
def test_an_acknowledgement_of_another_group_of_the_same_name_is_stale(delivery):
    r = reading(1, delivery=delivery)
    [message] = r.poll()
    other = Reading(delivery=delivery)
    other.group.incarnation += 1
    assert other.group.acknowledge(message) is STALE
    assert other.group.nack(message, "", now=0.0, monotonic=0.0) is STALE


# in flight → completed, by commit


@tracked
def test_a_commit_completes_all_that_was_delivered_to_this_consumer(delivery):
    r = reading(5, delivery=delivery)
    r.poll(room=3)
    assert r.group.commit("c") == {0: 3}
    assert marks(r) == (3, 3)
    assert r.progress.in_flight.total == 0


@tracked
def test_a_commit_before_any_poll_answers_the_start_of_the_group(delivery):
    r = Reading(delivery=delivery, start=[4])
    assert r.group.commit("c") == {0: 4}


def test_a_commit_in_an_at_most_once_group_finds_all_done():
    r = reading(3, delivery=AMO)
    r.poll(room=2)
    assert r.group.commit("c") == {0: 2}


@tracked
def test_a_commit_leaves_out_what_was_nacked(delivery):
    r = reading(5, delivery=delivery)
    m = r.poll()
    r.nack(m[2])
    assert r.group.commit("c") == {0: 2}
    assert offsets(r.poll()) == [2]
    assert r.group.commit("c") == {0: 5}


@tracked
def test_a_commit_covers_the_partitions_the_consumer_owns_now_and_no_others(delivery):
    r = Reading(partitions=2, delivery=delivery, members=["a", "b"])
    for partition in (0, 1):
        r.publish(1, 2, partition=partition)
    r.poll("a")
    r.poll("b")
    assert r.group.commit("a") == {0: 2}
    assert r.group.partitions[1].committed == 0


@tracked
def test_a_commit_of_offsets_completes_what_is_below(delivery):
    r = reading(5, delivery=delivery)
    m = r.poll()
    assert r.group.commit("c", {0: 3}) == {0: 3}
    assert marks(r) == (3, 5)
    assert r.ack(m[2], m[3]) == [STALE, COMPLETED]
    assert marks(r) == (4, 5)


@tracked
def test_a_commit_of_offsets_joins_what_was_acknowledged_beyond(delivery):
    r = reading(5, delivery=delivery)
    r.ack(r.poll()[3])
    assert r.group.commit("c", {0: 3}) == {0: 4}


@tracked
def test_a_commit_of_offsets_completes_failed_messages_too(delivery):
    r = reading(3, delivery=delivery, retry_backoff=5.0)
    r.nack(r.poll()[1])
    assert r.group.commit("c", {0: 3}) == {0: 3}
    assert len(r.progress.retries) == 0
    assert r.progress.failures == {}
    assert r.group.next_due("c") is None


@tracked
@pytest.mark.parametrize("offset", [1, 2, 3, 4])
def test_an_offset_from_the_committed_to_the_current_one_can_be_committed(delivery, offset):
    r = reading(5, delivery=delivery)
    m = r.poll(room=4)
    r.ack(m[0])
    assert r.group.commit("c", {0: offset}) == {0: offset}


@tracked
@pytest.mark.parametrize("offset", [0, 5, 99])
def test_no_other_offset_can_be_committed(delivery, offset):
    r = reading(5, delivery=delivery)
    m = r.poll(room=4)
    r.ack(m[0])
    with pytest.raises(InvalidOffsetError, match=rf"{offset} of partition 0.*offset 1 .*offset 4"):
        r.group.commit("c", {0: offset})
    assert marks(r) == (1, 4)
    assert r.progress.in_flight.total == 3


@tracked
def test_a_commit_of_offsets_is_all_or_nothing(delivery):
    r = Reading(partitions=3, delivery=delivery, members=["a", "b"])
    for partition in range(3):
        r.publish(1, 2, partition=partition)
    r.poll("a")
    r.poll("b")
    with pytest.raises(InvalidOffsetError):
        r.group.commit("a", {0: 1, 2: 3})
    with pytest.raises(StaleAssignmentError, match=r"'a' does not own partition 1.*\[0, 2\]"):
        r.group.commit("a", {0: 1, 1: 1})
    with pytest.raises(UnknownPartitionError, match=r"no partition 3.*0 to 2"):
        r.group.commit("a", {0: 1, 3: 0})
    assert [progress.committed for progress in r.group.partitions] == [0, 0, 0]
    assert r.group.commit("a", {0: 1, 2: 2}) == {0: 1, 2: 2}


def test_only_a_member_can_commit():
    r = reading(1)
    for given in (None, {}, {0: 0}):
        with pytest.raises(UnknownConsumerError, match=r"no member 'x'.*\['c'\]"):
            r.group.commit("x", given)


def test_a_commit_of_no_offsets_at_all_commits_nothing():
    r = reading(2)
    r.poll()
    assert r.group.commit("c", {}) == {}
    assert marks(r) == (0, 2)


# in flight → waiting → in flight


@tracked
def test_a_nacked_message_is_delivered_again_as_the_next_attempt(delivery):
    r = reading(3, delivery=delivery)
    m = r.poll()
    assert r.nack(m[1]) is RETRYING
    [again] = r.poll()
    assert (again.offset, again.delivery_attempt) == (1, 2)
    assert r.ack(m[1], again) == [STALE, COMPLETED]


@tracked
def test_a_nacked_message_holds_the_committed_offset_back(delivery):
    r = reading(3, delivery=delivery)
    m = r.poll()
    r.nack(m[0])
    r.ack(m[1], m[2])
    assert marks(r) == (0, 3)
    r.ack(*r.poll())
    assert marks(r) == (3, 3)


@tracked
def test_a_message_that_waits_may_still_be_acknowledged(delivery):
    r = reading(1, delivery=delivery)
    [message] = r.poll()
    r.nack(message)
    assert r.ack(message) == [COMPLETED]
    assert r.poll() == []
    assert marks(r) == (1, 1)


@tracked
def test_attempts_are_apart_by_a_backoff_that_doubles_up_to_its_maximum(delivery):
    r = reading(1, delivery=delivery, max_failures=9, retry_backoff=2.0, retry_backoff_max=10.0)
    [message] = r.poll()
    for backoff in (2.0, 4.0, 8.0, 10.0, 10.0):
        assert r.nack(message) is RETRYING
        assert r.group.next_due("c") == r.now + backoff
        r.now += backoff - 0.001
        assert r.poll() == []
        r.now += 0.001
        [message] = r.poll()
    assert message.delivery_attempt == 6


def test_a_backoff_that_would_overflow_is_the_maximum():
    r = reading(1, max_failures=10_000, retry_backoff=1e300, retry_backoff_max=5.0)
    [message] = r.poll()
    for _ in range(2000):
        r.nack(message)
    assert r.group.next_due("c") is not None
    r.now = 5.0
    assert offsets(r.poll()) == [0]


@tracked
def test_retries_come_before_what_is_new_and_share_the_room_with_it(delivery):
    r = reading(6, delivery=delivery)
    m = r.poll(room=4)
    r.nack(m[0])
    r.nack(m[2])
    assert offsets(r.poll(room=3)) == [0, 2, 4]
    assert offsets(r.poll(room=3)) == [5]


@tracked
def test_what_was_delivered_alike_stays_one_range_through_retries(delivery):
    r = reading(1000, delivery=delivery)
    m = r.poll(room=1000)
    r.nack(m[500])
    r.poll()
    assert len(list(r.progress.in_flight)) == 3


# Failures are counted


@tracked
def test_three_nacks_in_a_row_without_a_poll_make_a_dead_letter(delivery):
    r = reading(1, delivery=delivery)
    [message] = r.poll()
    assert [r.nack(message) for _ in range(3)] == [RETRYING, RETRYING, DEAD_LETTERED]
    assert r.progress.burying == {0}


@tracked
def test_three_nacks_of_three_deliveries_make_a_dead_letter(delivery):
    r = reading(1, delivery=delivery)
    results = []
    for _ in range(3):
        [message] = r.poll()
        results.append(r.nack(message))
    assert results == [RETRYING, RETRYING, DEAD_LETTERED]


@tracked
@pytest.mark.parametrize("most", [1, 2, 5])
def test_max_failures_is_how_often_a_message_may_fail(delivery, most):
    r = reading(1, delivery=delivery, max_failures=most)
    [message] = r.poll()
    assert [r.nack(message) for _ in range(most)] == [RETRYING] * (most - 1) + [DEAD_LETTERED]


@tracked
def test_failures_count_for_each_message_alone(delivery):
    r = reading(2, delivery=delivery)
    first, second = r.poll()
    results = [r.nack(first), r.nack(second), r.nack(first), r.nack(second)]
    assert results == [RETRYING] * 4
    assert [r.progress.failures[offset].count for offset in (0, 1)] == [2, 2]


@tracked
def test_failures_survive_a_change_of_the_owner(delivery):
    r = reading(1, delivery=delivery)
    [message] = r.poll()
    r.nack(message)
    r.nack(message)
    r.group.remove_member("c")
    r.group.add_member("d")
    [message] = r.poll("d")
    assert message.delivery_attempt == 2
    assert r.nack(message) is DEAD_LETTERED


@tracked
def test_a_failure_remembers_its_last_error_and_its_first_and_last_time(delivery):
    r = reading(1, delivery=delivery)
    [message] = r.poll()
    r.nack(message, "first")
    r.now = 5.0
    r.nack(message, "second")
    failure = r.progress.failures[0]
    assert (failure.count, failure.error) == (2, "second")
    assert (failure.first, failure.last) == (WALL, WALL + 5.0)


@tracked
def test_a_completed_message_is_no_longer_a_failure(delivery):
    r = reading(1, delivery=delivery)
    [message] = r.poll()
    r.nack(message)
    r.ack(message)
    assert r.progress.failures == {}


# waiting → burying → completed


@tracked
def test_a_message_is_completed_only_when_its_dead_letter_is_stored(delivery):
    r, m = buried_reading(delivery=delivery)
    r.ack(m[1])
    assert marks(r) == (0, 2)
    r.progress.buried(0)
    assert marks(r) == (2, 2)
    assert r.progress.failures == {}


@tracked
def test_a_message_that_is_being_buried_is_out_of_its_owners_hands(delivery):
    r, m = buried_reading(delivery=delivery)
    assert r.ack(m[0]) == [STALE]
    assert r.nack(m[0]) is STALE
    assert r.poll() == []
    assert r.group.commit("c") == {0: 0}
    assert r.progress.failures[0].count == 1


@tracked
def test_a_burial_that_fails_leaves_the_message_pending_and_is_tried_again(delivery):
    r, _ = buried_reading(delivery=delivery)
    r.progress.burial_failed(0, None, r.now)
    assert marks(r)[0] == 0
    assert r.poll() == []
    due = r.group.next_due("c")
    assert r.now < due <= r.now + 60.0
    r.now = due
    [again] = r.poll()
    assert (again.offset, again.delivery_attempt) == (0, 2)
    assert r.nack(again) is DEAD_LETTERED
    assert r.progress.failures[0].count == 2
    r.progress.buried(0)
    assert marks(r)[0] == 1


@tracked
def test_a_delivery_whose_burial_failed_may_be_acknowledged(delivery):
    r, m = buried_reading(delivery=delivery)
    r.progress.burial_failed(0, None, r.now)
    assert r.ack(m[0]) == [COMPLETED]
    assert marks(r)[0] == 1


@tracked
def test_the_next_owner_does_not_get_what_is_being_buried(delivery):
    r, _ = buried_reading(delivery=delivery)
    r.group.remove_member("c")
    r.group.add_member("d")
    assert offsets(r.poll("d")) == [1]
    r.progress.buried(0)
    assert marks(r) == (1, 2)


@tracked
@pytest.mark.parametrize("read_first", [True, False])
def test_the_next_owner_gets_what_could_not_be_buried(delivery, read_first):
    r, _ = buried_reading(delivery=delivery)
    r.group.remove_member("c")
    r.group.add_member("d")
    found = r.poll("d") if read_first else []
    r.progress.burial_failed(0, None, r.now)
    r.now += 60.0
    found += r.poll("d")
    assert sorted(offsets(found)) == [0, 1]


def test_a_burial_that_is_over_changes_nothing():
    r = reading(2)
    r.progress.buried(0)
    r.progress.burial_failed(0, None, 0.0)
    assert marks(r) == (0, 0)
    assert offsets(r.poll()) == [0, 1]


@tracked
@pytest.mark.parametrize("end", ["buried", "failed"])
def test_a_burial_overtaken_by_a_commit_ends_without_effect(delivery, end):
    r, m = buried_reading(delivery=delivery)
    assert r.group.commit("c", {0: 1}) == {0: 1}
    if end == "buried":
        r.progress.buried(0)
    else:
        r.progress.burial_failed(0, None, r.now)
    assert marks(r) == (1, 2)
    assert r.ack(m[1]) == [COMPLETED]
    r.now += 60.0
    assert r.poll() == []
    assert marks(r) == (2, 2)


def test_a_message_committed_during_its_burial_can_be_read_again_after_a_seek():
    r, m = buried_reading(delivery=ALO)
    r.group.commit("c", {0: 1})
    r.ack(m[1])
    r.seek(0)
    found = r.poll()
    assert offsets(found) == [0, 1]
    r.ack(*found)
    assert marks(r) == (2, 2)


@tracked
def test_a_burial_overtaken_by_retention_ends_without_effect(delivery):
    r, _ = buried_reading(delivery=delivery)
    r.group.remove_member("c")
    r.group.add_member("d")
    r.evict_below(1)
    assert offsets(r.poll("d")) == [1]
    r.progress.burial_failed(0, None, r.now)
    r.now += 60.0
    assert r.poll("d") == []
    assert marks(r) == (1, 2)


@tracked
def test_a_group_on_a_dead_letter_topic_leaves_a_failed_message_where_it_is_and_goes_on(delivery):
    r = Reading(delivery=delivery, topic="__dlq_t", max_failures=2)
    r.publish(1, 2)
    first, second = r.poll()
    assert [r.nack(first), r.nack(first)] == [RETRYING, DEAD_LETTERED]
    assert marks(r) == (1, 2)
    assert r.group.dead_lettered_total == 1
    assert r.ack(first, second) == [STALE, COMPLETED]


# Small things


def test_what_a_group_knows_of_a_million_messages_is_a_handful_of_ranges():
    progress = Progress(0, 0, Reading().config)
    for start in range(0, 1_000_000, 1000):
        progress.in_flight.set(start, start + 1000, Handout("c", 1, 1, 0))
        progress.position = start + 1000
        progress.complete(start, start + 1000)
    assert marks_of(progress) == (1_000_000, 1_000_000)
    for known in (progress.completed, progress.in_flight, progress.attempts, progress.skipped):
        assert len(list(known)) <= 1


def marks_of(progress):
    return progress.committed, progress.position


def test_a_stamp_makes_what_the_reader_gets_and_copies_only_if_asked():
    r = Reading()
    stored = r.publish(["mutable"], "text", key="k")
    piece = Piece(stored, Handout("c", 3, 2, 0), 9)
    plain = stamp([piece], copied=False)
    assert [(m.generation, m.delivery_attempt, m.group_incarnation) for m in plain] == [
        (3, 2, 9)
    ] * 2
    assert plain[0].value is stored[0].value
    for name in stored[0].__struct_fields__:
        assert [getattr(m, name) for m in plain] == [getattr(m, name) for m in stored]
    copied = stamp([piece], copied=True)
    assert copied == plain
    assert copied[0].value is not stored[0].value


def test_a_commit_counts_nothing_of_a_partition_that_does_not_exist():
    r = reading(1)
    for partition in (-1, 1):
        with pytest.raises(UnknownPartitionError, match=rf"no partition {partition}; .*0 to 0"):
            r.group.partition(partition)
