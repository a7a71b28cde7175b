"""What a group reads next: what waits behind a retry, what retention took, what came twice."""

from __future__ import annotations

import pytest
from core_support import (
    ALO,
    AMO,
    COMPLETED,
    DEAD_LETTERED,
    EO,
    STALE,
    Reading,
    every_delivery,
    marks,
    offsets,
    reading,
    tracked,
)

from dmq_actors import (
    Message,
    OffsetLostError,
    TopicConfig,
)

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
        with pytest.raises(OffsetLostError, match=r"offsets 0 to 3 of partition 0.*seek to 4"):
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
def test_a_seek_to_what_is_retained_replays_nothing_for_a_group_that_retention_overtook(delivery):
    """It goes forward, so what was completed there stays completed."""
    r = reading(4, delivery=delivery, on_offset_lost="error")
    r.ack(r.poll()[2])
    r.group.remove_member("c")
    r.group.add_member("d")
    r.evict_below(2)
    with pytest.raises(OffsetLostError):
        r.poll("d")
    r.seek(2)
    assert offsets(r.poll("d")) == [3]


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
