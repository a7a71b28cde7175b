"""Every transition of an offset within a group, as the header of ``progress.py`` draws them.

All go the way the actors go: plan, fetch, deliver, and then acknowledge, commit, seek and so on.
"""

from __future__ import annotations

import pytest
from core_support import INCARNATION, WALL, Reading, offsets

from dmq_actors import (
    AckResult,
    Delivery,
    InvalidOffsetError,
    Message,
    OffsetLostError,
    StaleAssignmentError,
    TopicConfig,
    UnknownConsumerError,
    UnknownPartitionError,
)
from dmq_actors._core.handout import Handout, Piece, stamp
from dmq_actors._core.progress import Progress

COMPLETED, RETRYING = AckResult.COMPLETED, AckResult.RETRYING
DEAD_LETTERED, STALE = AckResult.DEAD_LETTERED, AckResult.STALE
ALO, EO, AMO = Delivery.AT_LEAST_ONCE, Delivery.EXACTLY_ONCE, Delivery.AT_MOST_ONCE

every_delivery = pytest.mark.parametrize("delivery", list(Delivery))
tracked = pytest.mark.parametrize("delivery", [ALO, EO])


def reading(count=0, **options):
    """A group with one member on one partition that holds this many messages."""
    found = Reading(**options)
    found.publish(*range(count))
    return found


def marks(found):
    return found.progress.committed, found.progress.position


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
    with pytest.raises(UnknownPartitionError, match="no partition 3.*0 to 2"):
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
    r = reading(
        1, delivery=delivery, max_failures=9, retry_backoff=2.0, retry_backoff_max=10.0
    )
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


def buried_reading(count=2, **options):
    r = reading(count, max_failures=1, **options)
    m = r.poll()
    assert r.nack(m[0]) is DEAD_LETTERED
    return r, m


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


# in flight → ahead: the owner left, or the partition moved


@tracked
def test_what_was_in_flight_with_a_member_that_left_goes_to_the_next_owner(delivery):
    r = reading(3, delivery=delivery)
    old = r.poll()
    r.group.remove_member("c")
    assert marks(r) == (0, 0)
    assert r.progress.in_flight.total == 0
    r.group.add_member("d")
    new = r.poll("d")
    assert offsets(new) == [0, 1, 2]
    assert [m.delivery_attempt for m in new] == [2, 2, 2]
    assert r.ack(*old) == [STALE] * 3
    assert r.nack(old[0]) is STALE
    assert r.ack(*new) == [COMPLETED] * 3


@tracked
def test_what_was_completed_beyond_a_gap_is_not_delivered_again_after_a_move(delivery):
    r = reading(5, delivery=delivery)
    m = r.poll()
    r.ack(m[1], m[3])
    r.group.remove_member("c")
    r.group.add_member("d")
    new = r.poll("d")
    assert offsets(new) == [0, 2, 4]
    r.ack(*new)
    assert marks(r) == (5, 5)


@tracked
def test_attempts_are_counted_across_owners(delivery):
    r = reading(2, delivery=delivery)
    for attempt in range(1, 5):
        found = r.poll(f"d{attempt}" if attempt > 1 else "c", room=1)
        assert [m.delivery_attempt for m in found] == [attempt]
        r.group.remove_member(f"d{attempt}" if attempt > 1 else "c")
        r.group.add_member(f"d{attempt + 1}")
    assert [m.delivery_attempt for m in r.poll("d5")] == [5, 1]


def test_an_at_most_once_group_never_delivers_again_to_the_next_owner():
    r = reading(3, delivery=AMO)
    r.poll(room=2)
    r.group.remove_member("c")
    r.group.add_member("d")
    assert offsets(r.poll("d")) == [2]


@tracked
def test_a_partition_that_stays_with_its_owner_keeps_its_deliveries(delivery):
    r = Reading(partitions=2, delivery=delivery)
    for partition in (0, 1):
        r.publish(1, partition=partition)
    stays, moves = r.poll()
    r.group.add_member("d")
    assert r.ack(stays, moves) == [COMPLETED, STALE]
    assert offsets(r.poll("d")) == [0]


@tracked
def test_a_failed_message_keeps_its_time_when_its_owner_leaves(delivery):
    r = reading(2, delivery=delivery, retry_backoff=10.0)
    m = r.poll()
    r.nack(m[0])
    r.group.remove_member("c")
    r.group.add_member("d")
    assert offsets(r.poll("d")) == [1]
    assert r.group.next_due("d") == 10.0
    r.now = 10.0
    assert offsets(r.poll("d")) == [0]


@every_delivery
def test_a_fetch_that_a_move_has_overtaken_is_void(delivery):
    r = reading(3, delivery=delivery)
    under_way = r.begin()
    r.group.remove_member("c")
    r.group.add_member("d")
    assert offsets(r.poll("d")) == [0, 1, 2]
    assert r.finish(under_way) == ([], {})


# seek


@every_delivery
def test_a_seek_forward_moves_the_position_only(delivery):
    r = reading(9, delivery=delivery)
    r.poll(room=2)
    committed = r.progress.committed
    r.seek(6)
    assert marks(r) == (committed, 6)
    assert r.lag() == 9 - committed
    assert offsets(r.poll()) == [6, 7, 8]


@tracked
def test_what_a_seek_forward_skips_counts_as_done_at_the_next_commit(delivery):
    r = reading(9, delivery=delivery)
    r.poll(room=2)
    r.seek(6)
    r.ack(*r.poll(room=1))
    assert marks(r) == (0, 7)
    assert r.group.commit("c") == {0: 7}


@tracked
def test_a_seek_forward_that_is_not_committed_is_forgotten_with_its_owner(delivery):
    r = reading(5, delivery=delivery)
    r.seek(4)
    r.ack(*r.poll())
    r.group.remove_member("c")
    r.group.add_member("d")
    assert offsets(r.poll("d")) == [0, 1, 2, 3]


def test_a_seek_forward_in_an_at_most_once_group_is_done_with_the_next_poll():
    r = reading(9, delivery=AMO)
    r.seek(6)
    assert marks(r) == (0, 6)
    r.poll(room=1)
    assert marks(r) == (7, 7)


@tracked
def test_a_seek_forward_leaves_deliveries_in_flight(delivery):
    r = reading(9, delivery=delivery)
    m = r.poll(room=2)
    r.seek(6)
    assert r.ack(*m) == [COMPLETED] * 2
    assert marks(r) == (2, 6)


@tracked
def test_a_seek_forward_drops_the_retries_that_wait(delivery):
    r = reading(9, delivery=delivery)
    m = r.poll(room=2)
    r.nack(m[0])
    r.seek(6)
    assert r.group.next_due("c") is None
    assert offsets(r.poll()) == [6, 7, 8]
    assert r.group.commit("c") == {0: 9}


@pytest.mark.parametrize("delivery", [ALO, AMO])
def test_a_seek_back_replays_what_was_done(delivery):
    r = reading(5, delivery=delivery)
    r.ack(*r.poll())
    r.group.commit("c")
    assert marks(r) == (5, 5)
    r.seek(2)
    assert marks(r) == (2, 2)
    assert r.lag() == 3
    assert offsets(r.poll()) == [2, 3, 4]


def test_a_seek_back_in_an_exactly_once_group_delivers_only_what_is_not_done():
    r = reading(5, delivery=EO)
    m = r.poll()
    r.ack(m[0], m[1], m[3])
    r.nack(m[2])
    r.seek(0)
    assert marks(r)[1] == 2  # 0 and 1 are completed, and stay so
    assert offsets(r.poll()) == [2]  # 4 is still with its owner
    assert r.ack(m[4]) == [COMPLETED]


def test_a_seek_back_over_nothing_but_completed_messages_leaves_no_lag_in_an_exactly_once_group():
    r = reading(5, delivery=EO)
    r.ack(*r.poll())
    r.seek(0)
    assert r.poll() == []
    assert r.group.commit("c") == {0: 5}
    assert r.lag() == 0


def test_after_a_seek_back_an_exactly_once_group_goes_on_with_what_is_new():
    r = reading(3, delivery=EO)
    r.ack(*r.poll())
    r.seek(0)
    r.publish("new")
    found = r.poll()
    assert offsets(found) == [3]
    r.ack(*found)
    assert marks(r) == (4, 4)


def test_deliveries_from_before_a_seek_back_are_stale():
    r = reading(3, delivery=ALO)
    old = r.poll()
    r.seek(1)
    assert r.ack(*old) == [COMPLETED, STALE, STALE]
    new = r.poll()
    assert [m.delivery_attempt for m in new] == [2, 2]
    assert r.ack(*old) == [STALE] * 3
    assert r.ack(*new) == [COMPLETED] * 2


@pytest.mark.parametrize("end", ["ack", "commit"])
def test_a_completed_delivery_is_stale_even_when_a_seek_brings_its_message_back(end):
    """A thread that acknowledges twice must not complete what another is working on."""
    r = reading(1, delivery=ALO)
    [old] = r.poll()
    if end == "ack":
        r.ack(old)
    else:
        r.group.commit("c")
    r.seek(0)
    [new] = r.poll()
    assert r.ack(old) == [STALE]
    assert r.nack(old) is STALE
    assert marks(r) == (0, 1)
    assert r.ack(new) == [COMPLETED]


def test_a_nacked_message_that_two_seeks_went_over_and_back_is_delivered_again():
    """The first seek drops the retry from the schedule; the second takes the first back."""
    for delivery in (ALO, EO):
        r = reading(5, delivery=delivery)
        m = r.poll(room=3)
        r.ack(m[0], m[2])
        r.nack(m[1])
        r.seek(5)
        r.seek(1)
        assert 1 in offsets(r.poll())


def test_a_commit_never_completes_a_nacked_message_that_seeks_went_over_and_back():
    for delivery in (ALO, EO):
        r = reading(3, delivery=delivery)
        r.nack(r.poll()[1])
        r.seek(3)
        r.seek(1)
        r.group.commit("c")
        assert r.progress.committed <= 1


@pytest.mark.parametrize("order", ["key", "none", "partition"])
@pytest.mark.parametrize("how", ["nack", "give back"])
def test_a_message_that_comes_back_from_ahead_of_the_position_hides_nothing_before_it(how, order):
    """An exactly-once group sought back; its owner then returns what it had from further ahead."""
    r = reading(3, delivery=EO, retry_order=order)
    r.seek(2)
    pieces = r.poll_pieces()
    [ahead] = stamp(pieces, copied=False)
    r.seek(0)
    if how == "nack":
        assert r.nack(ahead) is RETRYING
    else:
        r.group.give_back(pieces)
    found = []
    while batch := r.poll():
        found += offsets(batch)
    assert found == [0, 1, 2]


def test_nacks_of_a_delivery_from_ahead_of_the_position_are_counted_each():
    r = reading(3, delivery=EO)
    r.seek(2)
    [ahead] = r.poll()
    r.seek(0)
    assert [r.nack(ahead) for _ in range(3)] == [RETRYING, RETRYING, DEAD_LETTERED]


def test_a_second_seek_back_finds_a_message_that_failed_ahead_of_the_position():
    r = reading(1, delivery=EO)
    [message] = r.poll()
    r.seek(0)
    r.nack(message)
    r.seek(0)
    [again] = r.poll()
    assert again.delivery_attempt == 2
    assert r.ack(again) == [COMPLETED]


def test_a_commit_does_not_complete_what_could_not_be_buried_ahead_of_the_position():
    r, _ = buried_reading(1, delivery=EO)
    r.seek(0)
    r.progress.burial_failed(0, None, r.now)
    assert r.group.commit("c") == {0: 0}
    r.now += 60.0
    assert offsets(r.poll()) == [0]


@tracked
def test_a_seek_back_drops_the_retries_that_wait_and_brings_their_messages_at_once(delivery):
    r = reading(4, delivery=delivery, retry_backoff=100.0)
    m = r.poll()
    r.nack(m[2])
    r.seek(1)
    assert r.group.next_due("c") is None
    found = {message.offset: message for message in r.poll()}
    assert 2 in found
    assert found[2].delivery_attempt == 2


@tracked
def test_a_seek_keeps_the_count_of_failures(delivery):
    r = reading(2, delivery=delivery)
    m = r.poll()
    r.nack(m[0])
    r.nack(m[0])
    r.seek(0)
    again = r.poll()[0]
    assert again.offset == 0
    assert r.nack(again) is DEAD_LETTERED


@tracked
def test_a_seek_to_where_the_group_is_drops_the_retries_too(delivery):
    r = reading(2, delivery=delivery)
    r.nack(r.poll()[0])
    r.seek(2)
    assert r.poll() == []
    assert r.group.commit("c") == {0: 2}


@tracked
def test_messages_held_behind_a_retry_are_skipped_by_a_seek_forward(delivery):
    r = Reading(delivery=delivery, retry_backoff=10.0)
    r.publish(1, 2, 3, key="k")
    r.nack(r.poll(room=1)[0])
    assert r.poll() == []
    assert r.progress.retries.held == 2
    r.seek(3)
    r.now = 10.0
    assert r.poll() == []
    assert r.group.commit("c") == {0: 3}


@every_delivery
def test_a_fetch_that_a_seek_has_overtaken_is_void(delivery):
    r = reading(9, delivery=delivery)
    under_way = r.begin()
    r.seek(7)
    assert r.finish(under_way) == ([], {})
    assert offsets(r.poll()) == [7, 8]


@every_delivery
def test_committed_never_passes_current_whatever_is_sought(delivery):
    r = reading(9, delivery=delivery)
    for target in (4, 9, 0, 7, 2, 2, 9, 5):
        r.seek(target)
        assert r.progress.position == target
        assert r.progress.committed <= target
        r.ack(*r.poll(room=1))
        assert 0 <= r.progress.committed <= r.progress.position <= 9


# A poll that was cancelled gives back


@tracked
def test_messages_given_back_are_delivered_again_as_the_same_attempt(delivery):
    r = reading(3, delivery=delivery)
    pieces = r.poll_pieces(room=2)
    old = stamp(pieces, copied=False)
    r.group.give_back(pieces)
    assert r.progress.in_flight.total == 0
    found = r.poll()
    assert [(m.offset, m.delivery_attempt) for m in found] == [(0, 1), (1, 1), (2, 1)]
    assert r.ack(*found) == [COMPLETED] * 3
    assert r.ack(*old) == [STALE] * 2


def test_messages_given_back_in_an_at_most_once_group_are_not_lost():
    r = reading(3, delivery=AMO)
    r.group.give_back(r.poll_pieces(room=2))
    assert marks(r) == (0, 0)
    assert offsets(r.poll()) == [0, 1, 2]


def test_an_at_most_once_group_never_delivers_given_back_messages_that_others_got_meanwhile():
    r = reading(4, delivery=AMO)
    pieces = r.poll_pieces(room=2)
    assert offsets(r.poll(room=1)) == [2]
    r.group.give_back(pieces)
    assert offsets(r.poll()) == [3]


def test_what_an_at_most_once_group_gives_back_is_not_lost_to_a_fetch_under_way():
    r = reading(4, delivery=AMO)
    pieces = r.poll_pieces(room=2)
    under_way = r.begin()
    r.group.give_back(pieces)
    delivered = offsets(stamp(r.finish(under_way)[0], copied=False))
    delivered += offsets(r.poll())
    assert delivered == [0, 1, 2, 3]


def test_an_at_most_once_group_gives_nothing_back_that_was_delivered_anew_after_a_seek():
    r = reading(3, delivery=AMO)
    pieces = r.poll_pieces()
    r.seek(1)
    assert offsets(r.poll()) == [1, 2]
    r.group.give_back(pieces)
    assert 2 not in offsets(r.poll())


@tracked
def test_giving_back_a_delivery_that_is_over_changes_nothing(delivery):
    r = reading(3, delivery=delivery)
    pieces = r.poll_pieces()
    m = stamp(pieces, copied=False)
    r.ack(m[0])
    r.nack(m[1])
    r.group.give_back(pieces)
    assert marks(r) == (1, 3)
    found = r.poll()
    assert [(m.offset, m.delivery_attempt) for m in found] == [(1, 2), (2, 1)]


@tracked
def test_giving_back_after_the_owner_left_changes_nothing(delivery):
    r = reading(2, delivery=delivery)
    pieces = r.poll_pieces()
    r.group.remove_member("c")
    r.group.add_member("d")
    new = r.poll("d")
    r.group.give_back(pieces)
    assert r.poll("d") == []
    assert r.ack(*new) == [COMPLETED] * 2


@tracked
def test_messages_of_a_key_given_back_are_delivered_in_their_order(delivery):
    r = Reading(delivery=delivery)
    r.publish(1, 2, 3, key="k")
    r.group.give_back(r.poll_pieces())
    assert offsets(r.poll(room=1)) == [0]
    assert offsets(r.poll()) == [1, 2]


@tracked
def test_a_commit_does_not_complete_what_was_given_back(delivery):
    r = reading(2, delivery=delivery)
    r.group.give_back(r.poll_pieces())
    assert r.group.commit("c") == {0: 0}


# What waits behind a retry


def keyed_reading(order, delivery=ALO, **options):
    """Offsets 0 a, 1 b, 2 a, 3 b, 4 a, 5 without a key; 0 and 1 are delivered and 0 is nacked."""
    r = Reading(delivery=delivery, retry_order=order, retry_backoff=10.0, **options)
    r.publish_messages([Message(n, key) for n, key in enumerate(["a", "b", b"a", "b", "a", None])])
    first, second = r.poll(room=2)
    r.nack(first)
    return r, first, second


@tracked
def test_by_key_later_messages_of_the_key_wait_and_all_others_go_on(delivery):
    r, _, _ = keyed_reading("key", delivery)
    assert offsets(r.poll()) == [3, 5]
    assert r.poll() == []
    assert (len(r.progress.retries.waiting), r.progress.retries.held) == (1, 2)
    assert r.group.next_due("c") == 10.0
    r.now = 10.0
    found = r.poll()
    assert [(m.offset, m.delivery_attempt) for m in found] == [(0, 2), (2, 1), (4, 1)]


@tracked
def test_messages_held_behind_a_key_are_released_in_order_however_small_the_room(delivery):
    r, _, _ = keyed_reading("key", delivery)
    r.poll()
    r.now = 10.0
    assert [offsets(r.poll(room=1)) for _ in range(4)] == [[0], [2], [4], []]


@tracked
def test_messages_held_behind_a_key_go_when_the_one_before_them_is_acknowledged(delivery):
    r, first, _ = keyed_reading("key", delivery)
    r.poll()
    assert r.ack(first) == [COMPLETED]
    assert offsets(r.poll()) == [2, 4]


@tracked
def test_messages_held_behind_a_key_go_when_the_one_before_them_is_a_dead_letter(delivery):
    r, first, _ = keyed_reading("key", delivery, max_failures=2)
    r.poll()
    assert r.nack(first) is DEAD_LETTERED
    assert offsets(r.poll()) == [2, 4]


@tracked
def test_a_later_message_of_the_key_that_fails_waits_behind_the_earlier_one(delivery):
    r = Reading(delivery=delivery, retry_backoff=10.0)
    r.publish(0, 1, key="a")
    first, second = r.poll()
    r.nack(second)
    r.now = 5.0
    r.nack(first)
    r.now = 10.0  # the second is due, the first is not
    assert r.poll() == []
    r.now = 15.0
    assert offsets(r.poll()) == [0, 1]


@tracked
def test_without_order_nothing_waits(delivery):
    r, _, _ = keyed_reading("none", delivery)
    assert offsets(r.poll()) == [2, 3, 4, 5]
    r.now = 10.0
    assert offsets(r.poll()) == [0]


@tracked
def test_by_partition_everything_later_waits(delivery):
    r, first, _ = keyed_reading("partition", delivery)
    assert r.poll() == []
    assert r.progress.position == 2
    assert r.group.next_due("c") == 10.0
    r.now = 10.0
    found = []
    while batch := r.poll():
        found += offsets(batch)
    assert found == [0, 2, 3, 4, 5]
    assert r.ack(first) == [STALE]


@tracked
def test_by_partition_a_dead_letter_opens_the_partition_again(delivery):
    r, first, _ = keyed_reading("partition", delivery, max_failures=2)
    assert r.nack(first) is DEAD_LETTERED
    assert offsets(r.poll()) == [2, 3, 4, 5]


@tracked
def test_a_retry_in_one_partition_holds_up_no_other(delivery):
    r = Reading(partitions=2, delivery=delivery, retry_order="partition", retry_backoff=10.0)
    r.publish(1, 2, partition=0)
    r.publish(1, 2, partition=1)
    first = r.poll(room=1)[0]
    r.nack(first)
    assert [(m.partition, m.offset) for m in r.poll()] == [(1, 0), (1, 1)]


@tracked
def test_a_key_with_a_retry_stays_in_order_when_the_owner_changes(delivery):
    r, _, _ = keyed_reading("key", delivery)
    r.poll()
    r.group.remove_member("c")
    r.group.add_member("d")
    assert offsets(r.poll("d")) == [1, 3, 5]
    r.now = 10.0
    assert offsets(r.poll("d")) == [0, 2, 4]


def test_a_retry_is_due_in_one_partition_while_another_has_dead_letters():
    """The end of the wait of a dead letter must not hide the next time something is due."""
    r = Reading(partitions=2, retry_backoff=1.0)
    r.publish("dead", partition=0)
    r.publish("fails", partition=1)
    dead, fails = r.poll()
    for _ in range(3):
        r.nack(dead)
    r.group.partitions[0].buried(0)
    r.now = 5.0
    r.nack(fails)
    assert r.poll() == []
    assert r.group.next_due("c") == 6.0


# Retention takes what was not read


@every_delivery
def test_a_group_that_was_too_slow_goes_on_at_the_first_retained_message(delivery):
    r = reading(6, delivery=delivery)
    r.poll(room=1)
    r.evict_below(4)
    state = r.begin()
    _, answers = r.finish(state)
    assert answers[0].lost == (1, 4)
    assert r.progress.skipped_total == 3
    assert r.progress.position >= 4


@every_delivery
def test_by_default_what_is_retained_is_delivered(delivery):
    r = reading(6, delivery=delivery)
    r.evict_below(4)
    found = r.poll()
    assert offsets(found) == [4, 5]
    r.ack(*found)
    assert marks(r) == (6, 6)
    assert r.progress.skipped_total == 4


@every_delivery
def test_with_latest_the_group_jumps_to_the_end(delivery):
    r = reading(6, delivery=delivery, on_offset_lost="latest")
    r.evict_below(4)
    assert r.poll() == []
    assert marks(r) == (6, 6)
    assert r.progress.skipped_total == 6
    r.publish("new")
    assert offsets(r.poll()) == [6]


@every_delivery
def test_with_error_every_poll_tells_until_somebody_seeks(delivery):
    r = reading(6, delivery=delivery, on_offset_lost="error")
    r.evict_below(4)
    for _ in range(2):
        with pytest.raises(OffsetLostError, match="offsets 0 to 3 of partition 0.*seek to 4"):
            r.poll()
        assert marks(r) == (0, 0)
    r.seek(4)
    assert offsets(r.poll()) == [4, 5]


@every_delivery
@pytest.mark.parametrize("policy", ["earliest", "latest", "error"])
def test_a_group_that_has_read_all_loses_nothing_to_retention(delivery, policy):
    r = reading(6, delivery=delivery, on_offset_lost=policy)
    m = r.poll()
    r.evict_below(6)
    r.publish("new")
    assert offsets(r.poll()) == [6]
    assert r.progress.skipped_total == 0
    r.ack(*m)
    assert r.progress.committed == (7 if delivery is AMO else 6)


def test_completed_messages_that_retention_takes_are_no_loss_after_a_seek_back():
    r = reading(5, delivery=EO, on_offset_lost="error")
    r.ack(*r.poll())
    r.seek(0)
    r.evict_below(5)
    r.publish("new")
    assert offsets(r.poll()) == [5]
    assert r.progress.skipped_total == 0


@tracked
def test_a_retry_that_retention_takes_is_skipped_and_opens_the_way(delivery):
    r = reading(3, delivery=delivery)
    m = r.poll()
    r.nack(m[0])
    r.ack(m[1], m[2])
    r.evict_below(2)
    assert r.poll() == []
    assert marks(r) == (3, 3)
    assert r.progress.skipped_total == 1
    assert r.ack(m[0]) == [STALE]


@tracked
def test_messages_held_behind_a_key_that_retention_takes_are_skipped(delivery):
    r, _, second = keyed_reading("key", delivery)
    found = r.poll()
    r.evict_below(3)
    r.now = 10.0
    found += r.poll()
    assert offsets(found) == [3, 5, 4]
    r.ack(second, *found)
    assert marks(r) == (6, 6)
    assert r.progress.skipped_total == 2


@tracked
def test_a_message_in_flight_that_retention_takes_can_still_be_acknowledged(delivery):
    r = reading(3, delivery=delivery)
    m = r.poll()
    r.evict_below(3)
    assert r.lag() == 0
    assert r.ack(*m) == [COMPLETED] * 3
    assert marks(r) == (3, 3)


@tracked
def test_a_message_in_flight_that_retention_takes_is_lost_when_its_owner_leaves(delivery):
    r = reading(3, delivery=delivery)
    r.poll()
    r.evict_below(2)
    r.group.remove_member("c")
    r.group.add_member("d")
    assert offsets(r.poll("d")) == [2]
    assert r.progress.skipped_total == 2


@every_delivery
def test_expired_messages_are_not_delivered(delivery):
    r = Reading(delivery=delivery, topic_config=TopicConfig(retention_seconds=10.0))
    r.publish(1)
    r.now = 5.0
    r.publish(2)
    r.now = 12.0
    assert offsets(r.poll()) == [1]


# Exactly once: messages with the same id


def test_a_second_message_with_the_same_id_is_skipped():
    r = Reading(delivery=EO)
    r.publish("a", message_id="x")
    r.publish("b", message_id="y")
    r.publish("a again", message_id="x")
    r.publish("c")
    found = r.poll()
    assert [m.value for m in found] == ["a", "b", "c"]
    assert r.group.duplicates_total == 1
    r.ack(*found)
    assert marks(r) == (4, 4)


def test_a_second_message_with_the_same_id_is_skipped_in_another_partition_too():
    r = Reading(partitions=2, delivery=EO, members=["a", "b"])
    r.publish("first", partition=0, message_id="x")
    r.publish("second", partition=1, message_id="x")
    assert [m.value for m in r.poll("a") + r.poll("b")] == ["first"]
    assert r.group.partitions[1].committed == 1


def test_a_message_with_an_id_is_no_duplicate_of_itself():
    r = Reading(delivery=EO)
    r.publish("a", message_id="x")
    r.nack(r.poll()[0])
    [again] = r.poll()
    assert again.delivery_attempt == 2
    r.group.remove_member("c")
    r.group.add_member("d")
    assert offsets(r.poll("d")) == [0]


def test_duplicates_do_not_take_up_room():
    r = Reading(delivery=EO)
    r.publish("a", message_id="x")
    r.publish(*["a"] * 5, message_id="x")
    r.publish("b")
    assert [m.value for m in r.poll(room=1) + r.poll(room=1)] == ["a", "b"]


@pytest.mark.parametrize("delivery", [ALO, AMO])
def test_other_groups_deliver_both(delivery):
    r = Reading(delivery=delivery)
    r.publish("a", message_id="x")
    r.publish("b", message_id="x")
    assert [m.value for m in r.poll()] == ["a", "b"]


def test_an_id_may_come_again_when_its_message_has_left_the_log():
    r = Reading(delivery=EO)
    r.publish("a", message_id="x")
    r.ack(*r.poll())
    r.evict_below(1)
    r.publish("b", message_id="x")
    assert [m.value for m in r.poll()] == ["b"]


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
    assert [(m.generation, m.delivery_attempt, m.group_incarnation) for m in plain] == [(3, 2, 9)] * 2
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
