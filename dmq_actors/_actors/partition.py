"""`PartitionActor`: owns the log of one partition.

Appends and reads go through it one at a time, which is all the locking a log needs. A group that
has read to the end leaves a watch; the next append tells it, *before* the publisher is answered, so
that whoever has published sees the message in the next poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uuid_utils import uuid4

from dmq_actors._core.arguments import check_int, check_seconds
from dmq_actors._core.batch import Batch
from dmq_actors._core.scan import Fetched
from dmq_actors._core.values import copy_out
from dmq_actors._runtime.base import BrokerActor
from dmq_actors._runtime.promise import Promise
from dmq_actors.errors import DMQError, InvalidTypeError
from dmq_actors.info import PartitionInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dmq_actors._core.partition_log import PartitionLog
    from dmq_actors._core.scan import Range
    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.scheduler import Scheduler
    from dmq_actors.messages import StoredMessage


class Bounds(NamedTuple):
    """The ends of a log: the first offset in it, and the one the next message gets."""

    base_offset: int
    next_offset: int


class PartitionActor(BrokerActor):
    """The log of one partition; nobody else touches it."""

    def __init__(self, log: PartitionLog, clock: Clock, dispatcher: Scheduler) -> None:
        super().__init__(f"partition-{log.topic}-{log.partition}", dispatcher)
        self._log = log
        self._clock = clock
        self._watches: dict[str, Callable[[int], object]] = {}

    def append(self, batch: Batch) -> list[StoredMessage] | Promise[list[StoredMessage]]:
        """Store a batch; the proxy makes one of a `Message` or several."""
        if not isinstance(batch, Batch):
            raise InvalidTypeError(
                f"append takes a prepared Batch, found {type(batch).__name__}; "
                "publish with MessageQueue.publish, or through mq.coordinator"
            )
        stored = self._log.append(
            batch,
            _message_ids(len(batch.messages)),
            now=self._clock.time(),
            monotonic=self._clock.monotonic(),
        )
        self._tell_watchers()
        return Promise.resolved(stored, copy_out) if batch.copied else stored

    def _tell_watchers(self) -> None:
        watches, self._watches = self._watches, {}
        for tell in watches.values():
            tell(self._log.next_offset)

    def _on_restart(self) -> None:
        # The message that was lost may have stored something before it failed.
        self._tell_watchers()

    def append_one(self, batch: Batch) -> StoredMessage | Promise[StoredMessage]:
        """As `append`, for a batch of one."""
        stored = self.append(batch)
        return stored.map(lambda kept: kept[0]) if isinstance(stored, Promise) else stored[0]

    def append_each(self, batch: Batch) -> list[StoredMessage | DMQError]:
        """As `append`, but a message that is refused does not keep the others out."""
        try:
            stored = self.append(batch)
            return [*(stored.peek() if isinstance(stored, Promise) else stored)]
        except DMQError as error:
            if len(batch.messages) == 1:
                return [error]
            return [outcome for one in batch.chunks(1) for outcome in self.append_each(one)]

    def fetch(
        self,
        ranges: Sequence[Range],
        watcher: str = "",
        tell: Callable[[int], object] | None = None,
    ) -> Fetched:
        """What is retained in these ranges of offsets, for a consumer group.

        When they reach to the end of the log, `tell` is called with the new ``next_offset`` once
        the log has grown, in this actor's thread.
        """
        log = self._log
        log.evict_expired(self._clock.monotonic())
        messages: list[StoredMessage] = []
        named: dict[int, str] = {}
        for start, end in ranges:
            messages += log.read(start, end)
            named.update(log.named_in(start, end))
        watched = bool(ranges) and ranges[-1][1] >= log.next_offset and tell is not None
        if watched and tell is not None:
            self._watches[watcher] = tell
        return Fetched(messages, log.base_offset, log.next_offset, log.holds_copies, named, watched)

    def read(
        self, offset: int, max_messages: int = 100
    ) -> list[StoredMessage] | Promise[list[StoredMessage]]:
        """Look at stored messages from `offset` on; moves nothing, concerns no group.

        Raises:
            InvalidArgumentError: `offset` or `max_messages` is negative.
        """
        check_int("offset", offset, minimum=0)
        check_int("max_messages", max_messages, minimum=0)
        self._log.evict_expired(self._clock.monotonic())
        start = max(offset, self._log.base_offset)
        messages = self._log.read(start, start + max_messages)
        return Promise.resolved(messages, copy_out) if self._log.holds_copies else messages

    def bounds(self) -> Bounds:
        """The ends of the log."""
        self._log.evict_expired(self._clock.monotonic())
        return Bounds(self._log.base_offset, self._log.next_offset)

    def offset_at(self, timestamp: float) -> int:
        """The first offset that was stored at this time (seconds since 1970 UTC) or later."""
        check_seconds("timestamp", timestamp)
        self._log.evict_expired(self._clock.monotonic())
        return self._log.offset_at(timestamp)

    def info(self) -> PartitionInfo:
        """A snapshot of the partition."""
        self._log.evict_expired(self._clock.monotonic())
        return PartitionInfo(
            self._log.topic,
            self._log.partition,
            self._log.base_offset,
            self._log.next_offset,
            self._log.size_bytes,
            self._restarts,
        )


_SUFFIXES = [f"{number:03x}" for number in range(4096)]


def _message_ids(count: int) -> list[str]:
    """UUIDs (version 4) as text: one drawn for 4096, which differ in their last 12 bits.

    The 110 random bits before those keep batches apart. Drawing each id by itself would cost as
    much as all the rest of a publish.
    """
    if count == 1:
        return [str(uuid4())]
    message_ids: list[str] = []
    while len(message_ids) < count:
        head = str(uuid4())[:-3]
        message_ids += [head + suffix for suffix in _SUFFIXES[: count - len(message_ids)]]
    return message_ids
