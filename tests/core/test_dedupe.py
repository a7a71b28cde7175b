"""`MessageIdIndex`: the first message of each id wins, as long as it is in the log."""

from __future__ import annotations

from core_support import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dmq_actors._core.dedupe import MessageIdIndex

IDS = ["x", "y", "z", "v", "w"]


def id_of(partition, offset):
    """A message has one id for life."""
    return IDS[(offset * 3 + partition * 2 + offset // 4) % 5]


class DedupeMachine(RuleBasedStateMachine):
    """The model: who was first, by id. Offsets come in any order, as seeks bring them."""

    @initialize()
    def begin(self):
        self.index = MessageIdIndex()
        self.first: dict[str, tuple[int, int]] = {}
        self.base = [0, 0]

    @rule(partition=st.integers(0, 1), ahead=st.integers(0, 12))
    def ask(self, partition, ahead):
        offset = self.base[partition] + ahead
        name = id_of(partition, offset)
        expected = self.first.setdefault(name, (partition, offset)) != (partition, offset)
        assert self.index.is_duplicate(name, partition, offset) == expected

    @rule(partition=st.integers(0, 1), count=st.integers(0, 6))
    def evict(self, partition, count):
        self.base[partition] += count
        self.index.evict_below(partition, self.base[partition])
        self.first = {
            name: (where, offset)
            for name, (where, offset) in self.first.items()
            if offset >= self.base[where]
        }

    @invariant()
    def it_remembers_only_what_is_retained(self):
        assert len(self.index) == len(self.first)
        noted = sum(len(seen) for seen in self.index._seen.values())
        assert noted <= len(IDS) * 8


DedupeMachine.TestCase.settings = examples(60, steps=30)
TestAgainstADictOfWhoWasFirst = DedupeMachine.TestCase


def test_the_second_message_of_an_id_is_a_duplicate_and_the_first_never_is():
    index = MessageIdIndex()
    assert not index.is_duplicate("x", 0, 5)
    assert index.is_duplicate("x", 0, 6)
    assert index.is_duplicate("x", 1, 0)
    assert not index.is_duplicate("x", 0, 5)


def test_an_id_whose_message_has_left_the_log_may_come_again():
    index = MessageIdIndex()
    index.is_duplicate("x", 0, 5)
    index.evict_below(0, 6)
    assert len(index) == 0
    assert not index.is_duplicate("x", 0, 9)
    assert index.is_duplicate("x", 0, 10)


def test_an_eviction_in_one_partition_leaves_the_ids_of_the_others():
    index = MessageIdIndex()
    index.is_duplicate("x", 0, 5)
    index.evict_below(1, 99)
    assert index.is_duplicate("x", 1, 100)


def test_an_id_that_a_seek_backwards_finds_is_forgotten_with_its_message_like_any_other():
    index = MessageIdIndex()
    index.is_duplicate("late", 0, 10)  # read first, after a seek forward
    index.is_duplicate("early", 0, 3)  # read after a seek back
    index.evict_below(0, 11)
    assert len(index) == 0
    assert not index.is_duplicate("early", 0, 12)
