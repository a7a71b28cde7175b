"""`PartitionActor` through its reference, on a manual clock."""

from __future__ import annotations

import pytest
from support import WATCHDOG, Crew

from dmq_actors import InvalidArgumentError, InvalidTypeError, Message, MessageTooLargeError
from dmq_actors._actors.partition import PartitionActor
from dmq_actors._core.batch import prepare
from dmq_actors._core.partition_log import PartitionLog
from dmq_actors.config import TopicConfig
from dmq_actors.errors import ActorCrashedError


class Partition:
    """A partition actor, and short words for what is asked of it."""

    def __init__(self, stage, clock, **options):
        self.config = TopicConfig(**options)
        self.ref = stage.spawn(PartitionActor, PartitionLog("t", 0, self.config), clock)

    def ask(self, method, *args):
        return self.ref.call(method, *args).get(timeout=WATCHDOG)

    def append(self, *values):
        batch = prepare(self.config, [Message(value) for value in values], 0)
        return self.ask(PartitionActor.append, batch)

    def fetch(self, start, end, watcher="", tell=None):
        return self.ask(PartitionActor.fetch, [(start, end)], watcher, tell)

    def values(self, *args):
        return [message.value for message in self.ask(PartitionActor.read, *args)]


@pytest.fixture
def partition(stage, clock):
    return Partition(stage, clock)


def test_appended_messages_get_offsets_ids_and_the_time(partition, clock):
    first = partition.append("a", "b")
    clock.advance(5)
    [third] = partition.append("c")
    assert [message.offset for message in [*first, third]] == [0, 1, 2]
    assert (first[0].timestamp, third.timestamp) == (1_700_000_000.0, 1_700_000_005.0)
    assert len({message.message_id for message in [*first, third]}) == 3
    assert (third.topic, third.partition, third.value) == ("t", 0, "c")


def test_append_one_answers_with_one(partition):
    batch = prepare(partition.config, [Message(["mutable"])], 0)
    stored = partition.ask(PartitionActor.append_one, batch)
    assert (stored.value, stored.offset) == (["mutable"], 0)


@pytest.mark.parametrize("wrong", [Message("m"), [Message("m")], None, "text"])
def test_append_takes_prepared_batches_only(partition, wrong):
    with pytest.raises(InvalidTypeError, match="publish"):
        partition.ask(PartitionActor.append, wrong)
    assert partition.ask(PartitionActor.bounds) == (0, 0)


def test_ids_of_a_large_batch_differ(partition):
    stored = partition.append(*range(10_000))
    assert len({message.message_id for message in stored}) == 10_000
    assert all(len(message.message_id) == 36 for message in stored)


def test_read_looks_from_any_offset_and_moves_nothing(partition):
    partition.append(*range(10))
    assert partition.values(0) == list(range(10))
    assert partition.values(7) == [7, 8, 9]
    assert partition.values(2, 3) == [2, 3, 4]
    assert partition.values(10) == partition.values(999) == partition.values(0, 0) == []
    assert partition.values(0) == list(range(10))


@pytest.mark.parametrize("args", [(-1,), (0, -1), ("0",), (True,), (0, 1.0), (None,)])
def test_read_refuses_what_is_no_offset_or_number(partition, args):
    with pytest.raises(InvalidArgumentError):
        partition.ask(PartitionActor.read, *args)


def test_readers_get_copies_of_mutable_values(partition):
    mine = ["a"]
    [stored] = partition.append(mine)
    mine.append("b")
    stored.value.append("c")
    [read] = partition.ask(PartitionActor.read, 0)
    read.value.append("d")
    assert partition.values(0) == [["a"]]


def test_shared_values_are_the_very_objects(stage, clock):
    partition = Partition(stage, clock, share_values=True)
    mine = ["a"]
    partition.append(mine)
    [read] = partition.ask(PartitionActor.read, 0)
    assert read.value is mine


def test_retention_by_age_works_when_somebody_looks(stage, clock):
    partition = Partition(stage, clock, retention_seconds=10.0)
    partition.append("old")
    clock.advance(6)
    partition.append("new")
    clock.advance(6)
    assert partition.ask(PartitionActor.bounds) == (1, 2)
    assert partition.values(0) == ["new"]
    assert partition.fetch(0, 9).base_offset == 1
    clock.advance(6)
    info = partition.ask(PartitionActor.info)
    assert (info.base_offset, info.next_offset, info.message_count) == (2, 2, 0)


def test_retention_by_count_works_when_something_is_appended(stage, clock):
    partition = Partition(stage, clock, retention_count=2)
    stored = partition.append("a", "b", "c")
    assert [message.value for message in stored] == ["a", "b", "c"]
    assert partition.values(0) == ["b", "c"]


def test_a_message_that_is_too_large_is_refused_and_nothing_is_stored(stage, clock):
    partition = Partition(stage, clock, retention_bytes=3)
    with pytest.raises(MessageTooLargeError):
        partition.append("ok", "too large")
    assert partition.ask(PartitionActor.info).size_bytes == 0
    assert partition.ask(PartitionActor.bounds) == (0, 0)


# Fetching and watching


def test_fetch_answers_with_what_there_is_of_the_ranges(partition):
    partition.append(*range(10))
    ranges = [(1, 3), (5, 6), (9, 20)]
    fetched = partition.ask(PartitionActor.fetch, ranges)
    assert [message.value for message in fetched.messages] == [1, 2, 5, 9]
    assert (fetched.base_offset, fetched.next_offset, fetched.watched) == (0, 10, False)


def test_who_has_read_to_the_end_is_told_once_of_the_next_message(partition):
    told = []
    assert partition.fetch(0, 1, "g", told.append).watched is True
    partition.append("a", "b")
    partition.append("c")
    assert told == [2]


def test_who_has_not_read_to_the_end_is_told_nothing(partition):
    partition.append("a", "b")
    told = []
    assert partition.fetch(0, 1, "g", told.append).watched is False
    assert partition.fetch(0, 2, "g", told.append).watched is True
    partition.append("c")
    assert told == [3]


def test_each_watcher_is_told_and_its_newest_watch_counts(partition):
    told = []
    partition.fetch(0, 1, "a", lambda end: told.append(("a, old", end)))
    partition.fetch(0, 1, "b", lambda end: told.append(("b", end)))
    partition.fetch(0, 1, "a", lambda end: told.append(("a", end)))
    partition.append("x")
    assert sorted(told) == [("a", 1), ("b", 1)]


def test_a_watcher_is_told_before_the_publisher_is_answered(partition):
    order = []
    partition.fetch(0, 1, "g", lambda _: order.append("told"))
    batch = prepare(partition.config, [Message("m")], 0)
    stored = partition.ref.call(PartitionActor.append, batch)
    stored.add_done_callback(lambda _: order.append("answered"))
    stored.get(timeout=WATCHDOG)
    partition.ask(PartitionActor.bounds)
    assert order == ["told", "answered"]


def test_ids_that_producers_gave_themselves_are_told_with_a_fetch(partition):
    batch = prepare(partition.config, [Message("a"), Message("b", message_id="mine")], 0)
    partition.ask(PartitionActor.append, batch)
    assert partition.fetch(0, 2).named == {1: "mine"}
    assert partition.fetch(0, 1).named == {}


# Life


def test_a_partition_that_crashes_keeps_its_log_and_its_watchers(partition):
    def crash(_self):
        raise SystemExit

    told = []
    partition.append("a")
    partition.fetch(0, 2, "g", told.append)
    with pytest.raises(ActorCrashedError):
        partition.ask(crash)
    partition.append("b")
    assert partition.values(0) == ["a", "b"]
    assert told, "nobody was told of the message after the crash"
    assert partition.ask(PartitionActor.info).restarts == 1


def test_many_publishers_get_offsets_without_gaps(partition):
    stored = []

    def publish(name):
        for number in range(100):
            stored.extend(partition.append((name, number), (name, number)))

    with Crew() as crew:
        for name in "abcd":
            crew.start(publish, name)
    assert sorted(message.offset for message in stored) == list(range(800))
    log = partition.values(0, 1000)
    for name in "abcd":
        own = [number for who, number in log if who == name]
        assert own == sorted(own)
