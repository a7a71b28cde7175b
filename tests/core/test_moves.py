"""What moves the position of a group: a change of the owner, a seek, a poll that was cancelled."""

from __future__ import annotations

import pytest
from core_support import (
    ALO,
    AMO,
    COMPLETED,
    DEAD_LETTERED,
    EO,
    RETRYING,
    STALE,
    Reading,
    buried_reading,
    every_delivery,
    marks,
    offsets,
    reading,
    tracked,
)

from dmq_actors._core.handout import stamp

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


@pytest.mark.parametrize("how", ["nack", "give back"])
def test_a_message_that_comes_back_during_a_fetch_of_later_ones_is_not_passed_over(how):
    """The fetch left it out because it was in flight; the position must not go past it."""
    r = reading(1, delivery=EO)
    pieces = r.poll_pieces()
    [message] = stamp(pieces, copied=False)
    r.seek(0)
    r.publish(1)
    under_way = r.begin()
    if how == "nack":
        r.nack(message)
    else:
        r.group.give_back(pieces)
    found = stamp(r.finish(under_way)[0], copied=False) + r.poll()
    assert sorted(offsets(found)) == [0, 1]


def test_what_could_not_be_buried_after_a_seek_past_it_is_not_completed_by_a_commit():
    r, _ = buried_reading(1)
    r.seek(0)
    r.seek(1)
    r.progress.burial_failed(0, None, r.now)
    assert r.group.commit("c") == {0: 0}
    r.now += 60.0
    assert offsets(r.poll()) == [0]


def test_what_is_given_back_after_a_seek_past_it_is_either_skipped_or_waits_but_not_both():
    r = reading(1, delivery=EO)
    pieces = r.poll_pieces()
    r.seek(0)
    r.seek(1)
    r.group.give_back(pieces)
    waits = 0 in r.progress.retries
    assert r.group.commit("c") == {0: 0 if waits else 1}
    assert offsets(r.poll()) == ([0] if waits else [])


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
def test_a_message_nacked_after_a_seek_went_past_it_is_not_completed_by_a_commit(delivery):
    """``nack`` has answered RETRYING, and that is newer than the seek."""
    r = reading(3, delivery=delivery)
    [first] = r.poll(room=1)
    r.nack(first)
    r.seek(3)
    if r.nack(first) is RETRYING:
        assert r.group.commit("c") == {0: 0}
        assert offsets(r.poll()) == [0]
    assert r.group.commit("c") == {0: 3}


def test_a_message_that_failed_ahead_of_the_position_is_lost_to_retention_like_any_other():
    for end in ("nack", "burial"):
        r = Reading(delivery=EO, max_failures=2)
        r.publish(0)
        [message] = r.poll()
        r.seek(0)
        r.nack(message)
        if end == "burial":
            r.nack(message)
            r.progress.burial_failed(0, None, r.now)
        r.evict_below(1)
        r.publish(1)
        r.now += 60.0
        r.ack(*r.poll())
        assert r.lag() == 0


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
