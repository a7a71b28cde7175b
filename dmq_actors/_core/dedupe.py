"""`MessageIdIndex`: which message of each id an exactly-once group saw first.

Only ids that producers gave themselves can stand twice; the broker's own UUIDs cannot. So only
those are remembered, and only while their message is still in the log.
"""

from __future__ import annotations

from collections import defaultdict, deque


class MessageIdIndex:
    """The first place, (partition, offset), of every message id that is still retained."""

    __slots__ = ("_first", "_in_order")

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, int]] = {}
        self._in_order: defaultdict[int, deque[tuple[int, str]]] = defaultdict(deque)

    def __len__(self) -> int:
        return len(self._first)

    def is_duplicate(self, message_id: str, partition: int, offset: int) -> bool:
        """Whether another message with this id was seen before; remembers this one if not."""
        place = self._first.setdefault(message_id, (partition, offset))
        if place != (partition, offset):
            return True
        seen = self._in_order[partition]
        if not seen or seen[-1][0] < offset:
            seen.append((offset, message_id))
        return False

    def evict_below(self, partition: int, base_offset: int) -> None:
        """Forget the ids of messages that have left the log of this partition."""
        seen = self._in_order[partition]
        while seen and seen[0][0] < base_offset:
            _, message_id = seen.popleft()
            self._first.pop(message_id, None)
