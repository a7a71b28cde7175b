"""`PartitionLog` against a list that forgets its front (invariants 1 and 5 of the design)."""

from __future__ import annotations

import gc
import weakref

import pytest
from core_support import WALL, append, examples, ids
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dmq_actors import Message, MessageTooLargeError, TopicConfig
from dmq_actors._core import partition_log
from dmq_actors._core.batch import prepare
from dmq_actors._core.partition_log import PartitionLog

SEGMENT = 1 << partition_log._SHIFT

numbers = st.none() | st.integers(1, 12)


class Small:
    """A log cut into segments of eight, so that every few appends cross a border."""

    @staticmethod
    def segments(monkeypatch):
        monkeypatch.setattr(partition_log, "_SHIFT", 3)
        monkeypatch.setattr(partition_log, "_SEGMENT_SIZE", 8)
        monkeypatch.setattr(partition_log, "_MASK", 7)


class LogMachine(RuleBasedStateMachine):
    """The model keeps every message with its size and age; retention is a filter from the front."""

    small = True

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        if self.small:
            Small.segments(self.patch)

    def teardown(self):
        self.patch.undo()

    @initialize(count=numbers, size=st.none() | st.integers(5, 60), seconds=numbers)
    def begin(self, count, size, seconds):
        self.config = TopicConfig(1, count, size, seconds)
        self.log = PartitionLog("t", 0, self.config)
        self.stored: list[tuple[str, str, int, float]] = []  # value, id, size, age stamp
        self.base = 0
        self.named: dict[int, str] = {}
        self.now = 0.0

    @rule(lengths=st.lists(st.integers(0, 9), max_size=20), named=st.booleans())
    def append(self, lengths, named):
        at = len(self.stored)
        messages = [
            Message("x" * length, "k", message_id=f"mine-{at + n}" if named and n % 2 else None)
            for n, length in enumerate(lengths)
        ]
        limit = self.config.retention_bytes
        before = self.bounds()
        if limit is not None and any(length + 1 > limit for length in lengths):
            with pytest.raises(MessageTooLargeError, match=f"retention_bytes={limit}"):
                append(self.log, messages, self.config, self.now)
            assert self.bounds() == before
            return
        stored = append(self.log, messages, self.config, self.now)
        for n, message in enumerate(messages):
            name = message.message_id or f"broker-{at + n}"
            self.stored.append((message.value, name, len(message.value) + 1, self.now))
            if message.message_id:
                self.named[at + n] = name
        self._retain()
        assert [(m.value, m.message_id, m.offset) for m in stored] == [
            (value, name, at + n) for n, (value, name, _, _) in enumerate(self.stored[at:])
        ]
        assert {(m.topic, m.partition, m.key, m.timestamp) for m in stored} <= {
            ("t", 0, "k", WALL + self.now)
        }

    @rule(seconds=st.floats(0, 8))
    def let_time_pass(self, seconds):
        before = self.bounds()
        self.now += seconds
        assert self.bounds() == before  # nothing is evicted between publishes

    @rule()
    def evict_expired(self):
        self.log.evict_expired(self.now)
        self._expire()

    @rule(start=st.integers(-3, 90), length=st.integers(-2, 60))
    def read(self, start, length):
        found = self.log.read(start, start + length)
        expected = range(max(start, self.base), min(start + length, len(self.stored)))
        assert [(m.offset, m.value, m.message_id) for m in found] == [
            (offset, *self.stored[offset][:2]) for offset in expected
        ]

    @rule(start=st.integers(0, 90), length=st.integers(0, 60))
    def named_in(self, start, length):
        assert self.log.named_in(start, start + length) == {
            offset: name
            for offset, name in self.named.items()
            if start <= offset < start + length and offset >= self.base
        }

    @invariant()
    def the_bounds_are_those_of_the_model(self):
        assert self.bounds() == (self.base, len(self.stored))
        assert len(self.log) == len(self.stored) - self.base

    @invariant()
    def it_keeps_no_more_segments_than_the_messages_need(self):
        shift = partition_log._SHIFT
        needed = (len(self.stored) >> shift) - (self.base >> shift) + 1
        assert len(self.log._segments) <= needed

    @invariant()
    def nothing_is_remembered_of_what_is_gone(self):
        held = [m for segment in self.log._segments.values() for m in segment if m is not None]
        assert len(held) == len(self.log)
        assert set(self.log._named) == {o for o in self.named if o >= self.base}

    @invariant()
    def the_size_is_that_of_what_is_retained(self):
        if self.config.retention_bytes is None:
            assert self.log.size_bytes is None
        else:
            assert self.log.size_bytes == sum(size for _, _, size, _ in self.stored[self.base :])

    def bounds(self):
        return self.log.base_offset, self.log.next_offset

    def _retain(self):
        count, limit = self.config.retention_count, self.config.retention_bytes
        if count is not None:
            self.base = max(self.base, len(self.stored) - count)
        while limit is not None and sum(size for *_, size, _ in self.stored[self.base :]) > limit:
            self.base += 1
        self._expire()

    def _expire(self):
        seconds = self.config.retention_seconds
        while (
            seconds is not None
            and self.base < len(self.stored)
            and self.stored[self.base][3] < self.now - seconds
        ):
            self.base += 1


LogMachine.TestCase.settings = examples(60, steps=30)
TestSmallSegmentsAgainstAList = LogMachine.TestCase


@pytest.mark.parametrize("batch_size", [1, 7, 700, SEGMENT, 2500])
def test_the_real_segment_border_is_crossed_many_times_without_a_gap(batch_size):
    config = TopicConfig(retention_count=1500)
    log = PartitionLog("t", 0, config)
    total = 20 * SEGMENT
    for start in range(0, total, batch_size):
        stop = min(start + batch_size, total)
        stored = append(log, map(Message, range(start, stop)), config)
        assert [m.offset for m in stored] == [m.value for m in stored] == list(range(start, stop))
        assert len(log) == min(stop, 1500)
    assert [m.value for m in log.read(0, total)] == list(range(total - 1500, total))
    assert len(log._segments) <= 3


def test_a_read_across_segments_returns_each_offset_once():
    config = TopicConfig()
    log = PartitionLog("t", 0, config)
    append(log, map(Message, range(4 * SEGMENT)), config)
    for start in (0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT - 5):
        for end in (start, start + 1, start + SEGMENT, start + 2 * SEGMENT + 3, 9 * SEGMENT):
            found = [message.value for message in log.read(start, end)]
            assert found == list(range(start, min(end, 4 * SEGMENT)))


def test_a_log_that_ends_on_a_segment_border_can_be_emptied_and_go_on():
    config = TopicConfig(retention_seconds=1.0)
    log = PartitionLog("t", 0, config)
    append(log, map(Message, range(SEGMENT)), config, now=0.0)
    log.evict_expired(5.0)
    assert (log.base_offset, log.next_offset, len(log)) == (SEGMENT, SEGMENT, 0)
    assert log.read(0, 2 * SEGMENT) == []
    [stored] = append(log, [Message("next")], config, now=6.0)
    assert stored.offset == SEGMENT
    assert log.read(0, 2 * SEGMENT) == [stored]


class Payload:
    """A value that can be referred to weakly."""


@pytest.mark.parametrize("kept", [1, 10, SEGMENT, SEGMENT + 3])
def test_evicted_messages_are_released_and_retained_ones_are_not(kept):
    config = TopicConfig(retention_count=kept, share_values=True)
    log = PartitionLog("t", 0, config)
    payloads = [Payload() for _ in range(2 * SEGMENT + 100)]
    refs = [weakref.ref(payload) for payload in payloads]
    append(log, map(Message, payloads), config)
    del payloads
    gc.collect()
    alive = [offset for offset, ref in enumerate(refs) if ref() is not None]
    assert alive == list(range(log.base_offset, log.next_offset))


def test_a_message_evicted_in_the_middle_of_a_segment_is_released_at_once():
    config = TopicConfig(retention_count=2, share_values=True)
    log = PartitionLog("t", 0, config)
    refs = []
    for _ in range(5):
        payload = Payload()
        refs.append(weakref.ref(payload))
        append(log, [Message(payload)], config)
        del payload
    gc.collect()
    assert [ref() is not None for ref in refs] == [False, False, False, True, True]


class CountingDict(dict):
    """A dict that counts how often it is looked at."""

    looks = 0

    def __contains__(self, key):
        self.looks += 1
        return super().__contains__(key)

    def get(self, key, default=None):
        self.looks += 1
        return super().get(key, default)

    def pop(self, key, *default):
        self.looks += 1
        return super().pop(key, *default)

    def __delitem__(self, key):
        self.looks += 1
        super().__delitem__(key)


@pytest.mark.parametrize("retained", [10, 1000, 50_000])
def test_an_eviction_touches_what_it_evicts_however_long_the_log_is(retained):
    config = TopicConfig(retention_count=retained, retention_bytes=10**9, retention_seconds=1e9)
    log = PartitionLog("t", 0, config)
    append(log, map(Message, range(retained)), config)
    log._segments = CountingDict(log._segments)
    sizes = log._retention._sizes = CountingDeque(log._retention._sizes)
    for number in range(20):
        append(log, [Message(number)], config)
    assert log.base_offset == 20
    assert log._segments.looks <= 20 * 3
    assert sizes.looks <= 20 * 3


class CountingDeque:
    """A deque that counts what is taken from it or looked at."""

    def __init__(self, inner):
        self.inner = inner
        self.looks = 0

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        for item in self.inner:
            self.looks += 1
            yield item

    def extend(self, items):
        self.inner.extend(items)

    def popleft(self):
        self.looks += 1
        return self.inner.popleft()


def test_an_eviction_by_size_looks_only_at_the_sizes_it_evicts():
    config = TopicConfig(retention_bytes=100_000)
    log = PartitionLog("t", 0, config)
    append(log, [Message("x" * 10) for _ in range(10_000)], config)
    sizes = log._retention._sizes = CountingDeque(log._retention._sizes)
    append(log, [Message("x" * 100)], config)
    assert (log.base_offset, log.size_bytes) == (10, 100_000)
    assert sizes.looks <= 30


def test_a_message_larger_than_the_partition_is_refused_and_nothing_of_its_batch_is_stored():
    config = TopicConfig(retention_bytes=10)
    log = PartitionLog("t", 0, config)
    append(log, [Message("12345")], config)
    with pytest.raises(MessageTooLargeError, match=r"11 bytes.*retention_bytes=10.*higher"):
        append(log, [Message("1"), Message("x" * 11)], config)
    assert [m.value for m in log.read(0, 99)] == ["12345"]
    assert (log.next_offset, log.size_bytes) == (1, 5)


def test_a_message_exactly_as_large_as_the_partition_replaces_all_others():
    config = TopicConfig(retention_bytes=10)
    log = PartitionLog("t", 0, config)
    append(log, [Message("12345"), Message("x" * 10)], config)
    assert [m.offset for m in log.read(0, 99)] == [1]
    assert log.size_bytes == 10


def test_a_batch_larger_than_the_retention_returns_all_it_stored_and_keeps_the_last():
    config = TopicConfig(retention_count=3)
    log = PartitionLog("t", 0, config)
    stored = append(log, map(Message, range(10)), config)
    assert [m.offset for m in stored] == list(range(10))
    assert [m.offset for m in log.read(0, 99)] == [7, 8, 9]


@pytest.mark.parametrize(
    ("start", "end"), [(-5, 0), (0, 0), (3, 1), (5, 5), (5, 99), (99, 5), (10**12, 10**13)]
)
def test_reading_outside_of_the_bounds_returns_nothing(start, end):
    config = TopicConfig()
    log = PartitionLog("t", 0, config)
    append(log, map(Message, range(5)), config)
    assert log.read(start, end) == []


def test_a_range_wider_than_the_log_returns_what_there_is():
    config = TopicConfig(retention_count=3)
    log = PartitionLog("t", 0, config)
    append(log, map(Message, range(5)), config)
    assert [m.offset for m in log.read(-(10**12), 10**12)] == [2, 3, 4]


def test_an_empty_batch_stores_nothing():
    config = TopicConfig(1, 3, 100, 5.0)
    log = PartitionLog("t", 0, config)
    assert append(log, [], config) == []
    assert (log.base_offset, log.next_offset, len(log)) == (0, 0, 0)


def test_an_id_given_by_the_producer_is_kept_and_the_others_are_drawn():
    config = TopicConfig()
    log = PartitionLog("t", 0, config)
    batch = prepare(config, [Message(1, message_id="mine"), Message(2)], 0)
    stored = log.append(batch, ids(2), now=WALL, monotonic=0.0)
    assert [m.message_id for m in stored] == ["mine", "id-1"]
    assert log.named_in(0, 2) == {0: "mine"}


def test_ids_of_evicted_messages_are_forgotten():
    config = TopicConfig(retention_count=2)
    log = PartitionLog("t", 0, config)
    append(log, [Message(n, message_id=f"mine-{n}") for n in range(5)], config)
    assert log.named_in(0, 99) == {3: "mine-3", 4: "mine-4"}


def test_looking_for_ids_in_a_wide_range_costs_no_more_than_the_log_is_long():
    """``poll(max_messages=sys.maxsize)`` asks for ids up to there."""
    config = TopicConfig()
    log = PartitionLog("t", 0, config)
    append(log, [Message(n, message_id=f"mine-{n}") for n in range(5)], config)
    log._named = CountingDict(log._named)
    assert len(log.named_in(0, 100_000)) == 5
    assert log._named.looks <= 10


def test_the_log_notes_that_it_holds_a_value_that_must_be_copied():
    config = TopicConfig()
    log = PartitionLog("t", 0, config)
    append(log, [Message("text")], config)
    assert not log.holds_copies
    append(log, [Message(["list"])], config)
    append(log, [Message("text")], config)
    assert log.holds_copies
