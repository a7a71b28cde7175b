"""`Store`: messages that a consumer was given and has not shown to anybody yet.

Iteration fetches many at a time and yields one. What is left in between must not be lost, not be
committed, and not be yielded when it is another's, or out of order, by then.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from dmq_actors._core.partitioners import optional_key_bytes
from dmq_actors.config import RetryOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dmq_actors._core.scan import Range
    from dmq_actors.messages import DeliveredMessage


class Store:
    """For the thread that polls, but for `failed`."""

    def __init__(self, retry_order: RetryOrder) -> None:
        self._retry_order = retry_order
        self._messages: deque[DeliveredMessage] = deque()
        self._failed: deque[DeliveredMessage] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[DeliveredMessage]:
        return iter(self._messages)

    def add(self, messages: Sequence[DeliveredMessage]) -> None:
        """Messages have come."""
        self._messages.extend(messages)

    def take(self, room: int) -> list[DeliveredMessage]:
        """The next ones, up to `room`."""
        return [self._messages.popleft() for _ in range(min(room, len(self._messages)))]

    def put_back(self, messages: Sequence[DeliveredMessage]) -> None:
        """These are next again."""
        self._messages.extendleft(reversed(messages))

    def remove(self, partitions: Collection[int]) -> list[DeliveredMessage]:
        """Remove and return what there is of these partitions."""
        return self._remove(lambda message: message.partition in partitions)

    def failed(self, message: DeliveredMessage) -> None:
        """A message was nacked. Any thread."""
        self._failed.append(message)

    def remove_held(self) -> list[DeliveredMessage]:
        """Remove and return what must come after messages that have failed meanwhile."""
        held: list[DeliveredMessage] = []
        while self._failed:
            failed = self._failed.popleft()
            held += self._remove(partial(self.is_behind, failed=failed))
        return held

    def is_behind(self, message: DeliveredMessage, failed: DeliveredMessage) -> bool:
        """Whether a message must wait until a failed one was retried; see ``retry_order``."""
        if message.partition != failed.partition or message.offset <= failed.offset:
            return False
        if self._retry_order is not RetryOrder.KEY:
            return self._retry_order is RetryOrder.PARTITION
        key = optional_key_bytes(failed.key)
        return key is not None and key == optional_key_bytes(message.key)

    def first_offset(self, partition: int) -> int | None:
        """The offset of the next message of a partition, if there is one."""
        return next((m.offset for m in self._messages if m.partition == partition), None)

    def ranges(self) -> dict[int, list[Range]]:
        """Where they stand in their partitions."""
        ranges: dict[int, list[Range]] = {}
        for message in self._messages:
            ranges.setdefault(message.partition, []).append((message.offset, message.offset + 1))
        return ranges

    def _remove(self, unwanted: Callable[[DeliveredMessage], bool]) -> list[DeliveredMessage]:
        removed = [message for message in self._messages if unwanted(message)]
        if removed:
            self._messages = deque(m for m in self._messages if not unwanted(m))
        return removed
