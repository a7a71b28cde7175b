"""`RangeMap` against a plain dict with one entry for each offset."""

from __future__ import annotations

from itertools import pairwise

import pytest
from core_support import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dmq_actors._core.range_map import RangeMap

HIGHEST = 24
places = st.integers(0, HIGHEST)
values = st.sampled_from(["a", "b", "c"])


class RangeMapMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.map: RangeMap[str] = RangeMap()
        self.model: dict[int, str] = {}

    @rule(start=places, length=st.integers(-2, 9), value=values)
    def set(self, start, length, value):
        self.map.set(start, start + length, value)
        self.model.update(dict.fromkeys(range(start, start + length), value))

    @rule(length=st.integers(1, 4), value=values)
    def extend(self, length, value):
        end = self.map.end
        self.map.set(end, end + length, value)
        self.model.update(dict.fromkeys(range(end, end + length), value))

    @precondition(lambda self: self.model)
    @rule(start=places, length=st.integers(-2, 9))
    def remove(self, start, length):
        self.map.remove(start, start + length)
        self._forget(lambda offset: start <= offset < start + length)

    @precondition(lambda self: self.model)
    @rule(start=places)
    def remove_from(self, start):
        self.map.remove_from(start)
        self._forget(lambda offset: offset >= start)

    @precondition(lambda self: self.model)
    @rule(end=places)
    def remove_below(self, end):
        self.map.remove_below(end)
        self._forget(lambda offset: offset < end)

    @precondition(lambda self: len(self.model) > 10)
    @rule()
    def clear(self):
        self.map.clear()
        self.model.clear()

    @rule(start=places, length=st.integers(-2, 9))
    def within(self, start, length):
        end = start + length
        found = self.map.within(start, end)
        assert _spread(found) == {o: v for o, v in self.model.items() if start <= o < end}
        assert all(low < high for low, high, _ in found)
        assert found == sorted(found)

    @rule(start=places, length=st.integers(-2, 40))
    def gaps(self, start, length):
        end = start + length
        found = list(self.map.gaps(start, end))
        free = [offset for low, high in found for offset in range(low, high)]
        assert free == [offset for offset in range(start, end) if offset not in self.model]
        assert all(high < low for (_, high), (low, _) in pairwise(found))

    @rule(offset=st.integers(0, HIGHEST + 12))
    def look(self, offset):
        assert (offset in self.map) == (offset in self.model)
        assert self.map.get(offset) == self.model.get(offset)
        end = offset
        while end in self.model:
            end += 1
        assert self.map.run_end(offset) == end

    @invariant()
    def it_holds_what_the_dict_holds(self):
        assert _spread(self.map) == self.model
        assert bool(self.map) == bool(self.model)
        assert self.map.total == len(self.model)
        assert self.map.end == (max(self.model) + 1 if self.model else 0)

    @invariant()
    def its_ranges_are_sorted_disjoint_filled_and_merged(self):
        ranges = list(self.map)
        assert all(start < end for start, end, _ in ranges)
        for (_, end, before), (start, _, after) in pairwise(ranges):
            assert end < start or (end == start and before != after)

    def _forget(self, gone):
        for offset in [offset for offset in self.model if gone(offset)]:
            del self.model[offset]


def _spread(ranges):
    spread: dict[int, str] = {}
    for start, end, value in ranges:
        for offset in range(start, end):
            assert offset not in spread, "two ranges overlap"
            spread[offset] = value
    return spread


RangeMapMachine.TestCase.settings = examples(60, steps=40)
TestRangeMapAgainstADict = RangeMapMachine.TestCase


def test_a_million_offsets_of_one_value_are_one_range():
    found: RangeMap[str] = RangeMap()
    for start in range(0, 1_000_000, 1000):
        found.set(start, start + 1000, "done")
    assert list(found) == [(0, 1_000_000, "done")]


def test_filling_the_gap_between_equal_neighbours_leaves_one_range():
    found: RangeMap[str] = RangeMap()
    found.set(0, 3, "a")
    found.set(5, 9, "a")
    found.set(3, 5, "a")
    assert list(found) == [(0, 9, "a")]


def test_a_value_written_into_the_middle_splits_a_range_in_three():
    found: RangeMap[str] = RangeMap()
    found.set(0, 9, "a")
    found.set(3, 5, "b")
    assert list(found) == [(0, 3, "a"), (3, 5, "b"), (5, 9, "a")]


def test_iterating_survives_a_change_of_the_map():
    found: RangeMap[str] = RangeMap()
    found.set(0, 2, "a")
    found.set(4, 6, "b")
    for start, end, _ in found:
        found.remove(start, end)
    assert not found


@pytest.mark.parametrize("question", ["within", "gaps"])
def test_asking_an_empty_map_about_an_empty_range_answers_nothing(question):
    assert list(getattr(RangeMap(), question)(5, 5)) == []
