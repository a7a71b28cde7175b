"""How much of a partition's log retention takes away; O(evicted), never O(log)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dmq_actors.errors import MessageTooLargeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dmq_actors.config import TopicConfig


class Retention:
    """The three limits of a topic applied to one partition: count, bytes, age.

    It is told of every append and eviction and answers one question: below which offset must the
    log be cut? Ages are monotonic seconds, so that a wall clock that jumps neither deletes new
    messages nor keeps old ones.
    """

    __slots__ = ("_batches", "_config", "_sizes", "size_bytes")

    def __init__(self, config: TopicConfig) -> None:
        self._config = config
        self._sizes: deque[int] = deque()
        self._batches: deque[tuple[int, float]] = deque()
        self.size_bytes = 0

    @property
    def tracks_bytes(self) -> bool:
        """Whether appends must come with the sizes of their messages."""
        return self._config.retention_bytes is not None

    def check_sizes(self, sizes: Sequence[int]) -> None:
        """Refuse a message that alone exceeds ``retention_bytes``: it would vanish at once."""
        limit = self._config.retention_bytes
        if limit is not None and sizes and max(sizes) > limit:
            raise MessageTooLargeError(
                f"a message of {max(sizes)} bytes is larger than retention_bytes={limit}; "
                "store a smaller one, or create the topic with a higher retention_bytes"
            )

    def appended(self, end: int, sizes: Sequence[int], monotonic: float) -> None:
        """Note that the log was extended up to offset `end`."""
        if self.tracks_bytes:
            self._sizes.extend(sizes)
            self.size_bytes += sum(sizes)
        if self._config.retention_seconds is not None:
            self._batches.append((end, monotonic))

    def cut(self, base: int, end: int, monotonic: float) -> int:
        """The offset below which a log of [base, end) must be evicted now."""
        if self._config.retention_count is not None:
            base = max(base, end - self._config.retention_count)
        return self.expired(max(base, self._over_bytes(base, end)), monotonic)

    def expired(self, base: int, monotonic: float) -> int:
        """As `cut`, by age alone."""
        if self._config.retention_seconds is not None:
            oldest = monotonic - self._config.retention_seconds
            while self._batches and self._batches[0][1] < oldest:
                base = max(base, self._batches.popleft()[0])
        return base

    def evicted(self, base: int, new_base: int) -> None:
        """Note that [base, new_base) has left the log."""
        if self.tracks_bytes:
            for _ in range(base, new_base):
                self.size_bytes -= self._sizes.popleft()
        while self._batches and self._batches[0][0] <= new_base:
            self._batches.popleft()

    def _over_bytes(self, base: int, end: int) -> int:
        limit = self._config.retention_bytes
        if limit is None or self.size_bytes <= limit:
            return base
        excess = self.size_bytes - limit
        first = end - len(self._sizes)
        for size in self._sizes:
            if excess <= 0:
                break
            excess -= size
            first += 1
        return max(base, first)
