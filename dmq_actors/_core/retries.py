"""`RetryQueue`: the messages of one partition that wait, for their next attempt or behind one.

Messages stand in lanes; only the head of a lane may go. What shares a lane is the whole of
``retry_order``: with ``"key"`` the messages of one key, with ``"partition"`` all of them, with
``"none"`` each has a lane of its own. A message with a failure waits until its due time; one that
is *held* only waits for those before it in its lane. Memory and work are O(what waits).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort

from dmq_actors.config import RetryOrder

MAX_HELD = 10_000
"""When a partition holds this many messages behind retries, it reads no further for a while."""

_NOW = float("-inf")
_Lane = bytes | int


class RetryQueue:
    """Offsets that wait, by lane. All of them are below the position of the partition."""

    __slots__ = ("_due", "_lane_of", "_lanes", "_open", "_order", "_sleeping")

    def __init__(self, order: RetryOrder) -> None:
        self._order = order
        self._lanes: dict[_Lane, list[int]] = {}
        self._lane_of: dict[int, _Lane] = {}
        self._due: dict[int, float] = {}
        self._open: set[_Lane] = set()
        self._sleeping: list[tuple[float, int, _Lane]] = []

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, offset: int) -> bool:
        return offset in self._lane_of

    @property
    def waiting(self) -> list[int]:
        """The offsets that have failed and wait for their next attempt."""
        return list(self._due)

    @property
    def held(self) -> int:
        """How many were not delivered yet and wait behind others."""
        return len(self._lane_of) - len(self._due)

    @property
    def closes_partition(self) -> bool:
        """Whether nothing new of the partition may be read now."""
        if self._order is RetryOrder.PARTITION:
            return bool(self._lane_of)
        return self.held >= MAX_HELD

    def wait(self, offset: int, key: bytes | None, due: float = _NOW) -> None:
        """Let this message be delivered (again) once `due` has come and its lane allows."""
        if offset not in self._lane_of:
            self._enter(offset, key)
        self._due[offset] = due
        self._schedule(self._lane_of[offset])

    def hold(self, offset: int, key: bytes | None) -> bool:
        """Put a new message behind the waiting ones of its lane; False if there are none."""
        if self._lane(offset, key) not in self._lanes:
            return False
        self._enter(offset, key)
        return True

    def ready(self, now: float, limit: int) -> list[int]:
        """Up to `limit` offsets that may be delivered now, in offset order."""
        while (due := self._next_wake()) is not None and due <= now:
            self._open.add(heapq.heappop(self._sleeping)[2])
        found: list[int] = []
        for lane in list(self._open):
            free = self._free(lane, now)
            if not free:
                self._open.discard(lane)
                self._schedule(lane)
            found += free[:limit]
        return sorted(found)[:limit]

    def is_ready(self, offset: int, now: float) -> bool:
        """Whether this offset is the head of its lane, and due."""
        lane = self._lane_of.get(offset)
        return (
            lane is not None
            and self._lanes[lane][0] == offset
            and self._due.get(offset, _NOW) <= now
        )

    def next_due(self) -> float | None:
        """When `ready` will next have something; None when nothing waits."""
        return _NOW if self._open else self._next_wake()

    def take(self, offset: int) -> None:
        """Remove an offset: it is being delivered, or it is completed."""
        lane = self._lane_of.pop(offset, None)
        if lane is None:
            return
        self._due.pop(offset, None)
        offsets = self._lanes[lane]
        del offsets[bisect_left(offsets, offset)]
        if not offsets:
            del self._lanes[lane]
            self._open.discard(lane)
        elif lane not in self._open:
            self._schedule(lane)

    def between(self, start: int, end: int) -> list[int]:
        """The waiting and held offsets in [start, end), in order."""
        if end - start == 1:
            return [start] if start in self._lane_of else []
        return sorted(offset for offset in self._lane_of if start <= offset < end)

    def clear(self) -> None:
        """Forget all."""
        self._lanes.clear()
        self._lane_of.clear()
        self._due.clear()
        self._open.clear()
        self._sleeping.clear()

    def _lane(self, offset: int, key: bytes | None) -> _Lane:
        if self._order is RetryOrder.PARTITION:
            return b""
        return offset if key is None or self._order is RetryOrder.NONE else key

    def _enter(self, offset: int, key: bytes | None) -> None:
        lane = self._lane_of[offset] = self._lane(offset, key)
        insort(self._lanes.setdefault(lane, []), offset)

    def _free(self, lane: _Lane, now: float) -> list[int]:
        free = []
        for offset in self._lanes[lane]:
            if self._due.get(offset, _NOW) > now:
                break
            free.append(offset)
        return free

    def _next_wake(self) -> float | None:
        """When the next closed lane opens; drops what was scheduled for heads that are gone."""
        while self._sleeping:
            due, head, lane = self._sleeping[0]
            offsets = self._lanes.get(lane)
            if offsets and offsets[0] == head and self._due.get(head, _NOW) == due:
                return due
            heapq.heappop(self._sleeping)
        return None

    def _schedule(self, lane: _Lane) -> None:
        head = self._lanes[lane][0]
        heapq.heappush(self._sleeping, (self._due.get(head, _NOW), head, lane))
