"""`Traffic`: what the coordinator counts of a topic: whose turn it is, and whether it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmq_actors._core.batch import ROUND_ROBIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dmq_actors.config import TopicConfig

GROWING_AT = 1_000_000
"""A topic without a bound warns at this many messages, and at each doubling."""


class Traffic:
    """The round-robin counter of a topic, and the count of what was published to it."""

    __slots__ = ("_bounded", "_next", "_num_partitions", "_warn_at", "published")

    def __init__(self, config: TopicConfig) -> None:
        self._num_partitions = config.num_partitions
        self._next = 0
        self._warn_at = GROWING_AT
        self._bounded = not (
            config.retention_count is config.retention_bytes is config.retention_seconds is None
        )
        self.published = 0

    def deal(self, partitions: Sequence[int]) -> list[int]:
        """The partitions with each `ROUND_ROBIN` replaced by the next in turn, from 0."""
        dealt = []
        for partition in partitions:
            if partition == ROUND_ROBIN:
                dealt.append(self._next)
                self._next = (self._next + 1) % self._num_partitions
            else:
                dealt.append(partition)
        return dealt

    def count(self, messages: int) -> bool:
        """Count messages; True when a topic without a bound has passed a mark."""
        self.published += messages
        if self._bounded or self.published < self._warn_at:
            return False
        while self._warn_at <= self.published:
            self._warn_at *= 2
        return True
