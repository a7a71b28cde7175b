"""`MessageIdIndex`: which message of each id an exactly-once group saw first.

Only ids that producers gave themselves can stand twice; the broker's own UUIDs cannot. So only
those are remembered, and only while their message is still in the log.
"""

from __future__ import annotations

import heapq
from collections import defaultdict


class MessageIdIndex:
    """The first place, (partition, offset), of every message id that is still retained."""

    __slots__ = ("_first", "_seen")

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, int]] = {}
        self._seen: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._first)

    def is_duplicate(self, message_id: str, partition: int, offset: int) -> bool:
        """Whether another message with this id was seen before; remembers this one if not."""
        first = self._first.get(message_id)
        if first is not None:
            return first != (partition, offset)
        self._first[message_id] = (partition, offset)
        heapq.heappush(self._seen[partition], (offset, message_id))
        return False

    def evict_below(self, partition: int, base_offset: int) -> None:
        """Forget the ids of messages that have left the log of this partition."""
        seen = self._seen[partition]
        while seen and seen[0][0] < base_offset:
            _, message_id = heapq.heappop(seen)
            del self._first[message_id]
