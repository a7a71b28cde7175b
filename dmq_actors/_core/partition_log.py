"""`PartitionLog`: the messages of one partition, by offset.

The log is cut into segments of 1024 offsets, found by ``offset >> 10`` in a dict. So reading at any
offset, appending, and evicting from the front each cost what they touch: nothing is ever shifted.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from dmq_actors._core.retention import Retention
from dmq_actors.messages import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dmq_actors._core.batch import Batch
    from dmq_actors.config import TopicConfig

_SHIFT = 10
_SEGMENT_SIZE = 1 << _SHIFT
_MASK = _SEGMENT_SIZE - 1


class PartitionLog:
    """An append-only log with retention. Offsets start at 0 and are never reused.

    Always true: ``0 <= base_offset <= next_offset`` and ``next_offset - base_offset == len(log)``;
    neither bound ever decreases.
    """

    __slots__ = (
        "_in_time_order",
        "_latest",
        "_named",
        "_retention",
        "_segments",
        "base_offset",
        "holds_copies",
        "next_offset",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, partition: int, config: TopicConfig) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = 0
        self.next_offset = 0
        self.holds_copies = False
        self._segments: dict[int, list[StoredMessage | None]] = {}
        self._retention = Retention(config)
        self._named: dict[int, str] = {}
        self._latest = float("-inf")
        self._in_time_order = True

    def __len__(self) -> int:
        return self.next_offset - self.base_offset

    @property
    def size_bytes(self) -> int | None:
        """The size of what is retained, or None where the topic has no ``retention_bytes``."""
        return self._retention.size_bytes if self._retention.tracks_bytes else None

    def append(
        self, batch: Batch, message_ids: Sequence[str], *, now: float, monotonic: float
    ) -> list[StoredMessage]:
        """Store a batch in order, then enforce retention.

        Args:
            batch: what was prepared in the caller's thread.
            message_ids: one for each message, used where the message brings none.
            now: the time stamp, float seconds since 1970 UTC.
            monotonic: the age stamp, monotonic seconds.

        Returns:
            The stored messages, one for each, also of those that retention evicted at once.

        Raises:
            MessageTooLargeError: one message alone exceeds ``retention_bytes``; none was stored.
        """
        self._retention.check_sizes(batch.sizes)
        topic, partition = self.topic, self.partition
        if batch.named:
            given = [message.message_id for message in batch.messages]
            self._named.update(
                (self.next_offset + at, name) for at, name in enumerate(given) if name is not None
            )
            message_ids = [name or new for name, new in zip(given, message_ids, strict=True)]
        offsets = range(self.next_offset, self.next_offset + len(batch.messages))
        stored = [
            StoredMessage(m.value, m.key, m.headers, message_id, topic, partition, offset, now)
            for m, message_id, offset in zip(batch.messages, message_ids, offsets, strict=True)
        ]
        self._extend(stored)
        self._in_time_order = self._in_time_order and now >= self._latest
        self._latest = now
        self.holds_copies = self.holds_copies or batch.copied
        self._retention.appended(self.next_offset, batch.sizes, monotonic)
        self._evict_below(self._retention.cut(self.base_offset, self.next_offset, monotonic))
        return stored

    def read(self, start: int, end: int) -> list[StoredMessage]:
        """The messages retained in [start, end), in offset order."""
        start, end = max(start, self.base_offset), min(end, self.next_offset)
        messages: list[StoredMessage] = []
        while start < end:
            segment = self._segments[start >> _SHIFT]
            low = start & _MASK
            piece = segment[low : low + end - start]
            messages += piece  # type: ignore[arg-type]  # None stands only below base_offset
            start += len(piece)
        return messages

    def named_in(self, start: int, end: int) -> dict[int, str]:
        """The ids that producers gave themselves, by offset, in [start, end)."""
        if not self._named:
            return {}
        start, end = max(start, self.base_offset), min(end, self.next_offset)
        return {
            offset: self._named[offset] for offset in range(start, end) if offset in self._named
        }

    def offset_at(self, timestamp: float) -> int:
        """The first offset that was stored at this time or later, or the end of the log.

        After Kafka's ``offsetsForTimes``. Once the wall clock was set back this looks at every
        message; before that it halves the log.
        """
        offsets = range(self.base_offset, self.next_offset)
        if self._in_time_order:
            return self.base_offset + bisect_left(offsets, timestamp, key=self._timestamp)
        later = (offset for offset in offsets if self._timestamp(offset) >= timestamp)
        return next(later, self.next_offset)

    def _timestamp(self, offset: int) -> float:
        return self._segments[offset >> _SHIFT][offset & _MASK].timestamp  # type: ignore[union-attr]

    def evict_expired(self, monotonic: float) -> None:
        """Evict what ``retention_seconds`` no longer allows at this time."""
        self._evict_below(self._retention.expired(self.base_offset, monotonic))

    def _extend(self, stored: list[StoredMessage]) -> None:
        done = 0
        while done < len(stored):
            room = _SEGMENT_SIZE - (self.next_offset & _MASK)
            piece = stored[done : done + room]
            self._segments.setdefault(self.next_offset >> _SHIFT, []).extend(piece)
            self.next_offset += len(piece)
            done += len(piece)

    def _evict_below(self, new_base: int) -> None:
        if new_base <= self.base_offset:
            return
        self._retention.evicted(self.base_offset, new_base)
        if self._named:
            for offset in range(self.base_offset, new_base):
                self._named.pop(offset, None)
        for number in range(self.base_offset >> _SHIFT, new_base >> _SHIFT):
            del self._segments[number]
        if partial := self._segments.get(new_base >> _SHIFT):
            low = max(self.base_offset, new_base & ~_MASK) & _MASK
            high = new_base & _MASK
            partial[low:high] = [None] * (high - low)
        self.base_offset = new_base
