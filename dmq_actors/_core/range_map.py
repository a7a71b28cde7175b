"""`RangeMap`: values for ranges of offsets, in memory that depends on the ranges, not the offsets.

A group remembers four things about the offsets of a partition: which are completed, which are in
flight and with whom, how often each was delivered before, which a seek has skipped. Streams make
such knowledge contiguous, so half-open ranges hold a million offsets in one entry. Neighbours with
equal values are merged; extending the last range, what a poll does, costs O(1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

V = TypeVar("V")


class RangeMap(Generic[V]):
    """A map from offset to value, stored as sorted, disjoint, half-open ranges."""

    __slots__ = ("_ends", "_starts", "_values")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._values: list[V] = []

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int, V]]:
        return iter(list(zip(self._starts, self._ends, self._values, strict=True)))

    @property
    def total(self) -> int:
        """How many offsets have a value."""
        return sum(self._ends) - sum(self._starts)

    @property
    def end(self) -> int:
        """One past the highest offset with a value; 0 when there is none."""
        return self._ends[-1] if self._ends else 0

    def get(self, offset: int) -> V | None:
        """The value of one offset, or None."""
        at = bisect_right(self._starts, offset) - 1
        return self._values[at] if at >= 0 and offset < self._ends[at] else None

    def run_end(self, offset: int) -> int:
        """Where the run of offsets with values around `offset` ends; `offset` if it has none."""
        at = bisect_right(self._starts, offset) - 1
        while 0 <= at < len(self._starts) and self._starts[at] <= offset < self._ends[at]:
            offset = self._ends[at]
            at += 1
        return offset

    def within(self, start: int, end: int) -> list[tuple[int, int, V]]:
        """The ranges with values inside [start, end), clipped to it."""
        found = []
        at = max(bisect_right(self._starts, start) - 1, 0)
        while at < len(self._starts) and self._starts[at] < end:
            low, high = max(self._starts[at], start), min(self._ends[at], end)
            if low < high:
                found.append((low, high, self._values[at]))
            at += 1
        return found

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges without values inside [start, end), in order."""
        at = max(bisect_right(self._starts, start) - 1, 0)
        while start < end:
            if at >= len(self._starts) or self._starts[at] >= end:
                yield start, end
                return
            if start < self._starts[at]:
                yield start, self._starts[at]
            start = max(start, self._ends[at])
            at += 1

    def set(self, start: int, end: int, value: V) -> None:
        """Give all of [start, end) this value."""
        if start >= end:
            return
        if self._ends and start >= self._ends[-1]:
            if start == self._ends[-1] and self._values[-1] == value:
                self._ends[-1] = end
            else:
                self._splice(len(self._starts), len(self._starts), [(start, end, value)])
            return
        self.remove(start, end)
        at = bisect_left(self._starts, start)
        low, high = at, at
        if at > 0 and self._ends[at - 1] == start and self._values[at - 1] == value:
            low, start = at - 1, self._starts[at - 1]
        if at < len(self._starts) and self._starts[at] == end and self._values[at] == value:
            high, end = at + 1, self._ends[at]
        self._splice(low, high, [(start, end, value)])

    def remove(self, start: int, end: int) -> None:
        """Forget the values of all of [start, end)."""
        low = max(bisect_right(self._starts, start) - 1, 0)
        while low < len(self._starts) and self._ends[low] <= start:
            low += 1
        high = max(bisect_left(self._starts, end), low)
        if low == high or start >= end:
            return
        left_over = []
        if self._starts[low] < start:
            left_over.append((self._starts[low], start, self._values[low]))
        if self._ends[high - 1] > end:
            left_over.append((end, self._ends[high - 1], self._values[high - 1]))
        self._splice(low, high, left_over)

    def remove_from(self, start: int) -> None:
        """Forget everything at and above `start`."""
        self.remove(start, max(self.end, start))

    def remove_below(self, end: int) -> None:
        """Forget everything below `end`."""
        if self._starts and self._starts[0] < end:
            self.remove(self._starts[0], end)

    def clear(self) -> None:
        """Forget everything."""
        self._splice(0, len(self._starts), [])

    def _splice(self, low: int, high: int, ranges: list[tuple[int, int, V]]) -> None:
        self._starts[low:high] = [start for start, _, _ in ranges]
        self._ends[low:high] = [end for _, end, _ in ranges]
        self._values[low:high] = [value for _, _, value in ranges]
