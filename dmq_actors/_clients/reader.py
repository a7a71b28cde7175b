"""`Reader`: what a member of a group does there: read, complete, move.

What `Consumer`, `AsyncConsumer` and workers have in common. Its methods are steps (see `steps`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._actors.partition import PartitionActor
from dmq_actors._actors.proxies import acknowledge
from dmq_actors._clients.membership import Membership
from dmq_actors.config import AckResult
from dmq_actors.errors import (
    DMQError,
    InvalidArgumentError,
    InvalidOffsetError,
    StaleAssignmentError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dmq_actors._clients.steps import Steps
    from dmq_actors.messages import DeliveredMessage

    Listener = Callable[[list[int]], Awaitable[None] | None]

P = ParamSpec("P")
T = TypeVar("T")


class Reader(Membership):
    """A consumer at work.

    All is for one thread or task at a time, but what completes messages or gives them back.
    """

    # Reading

    def poll(self, room: int | None, timeout: float | None) -> Steps[list[DeliveredMessage]]:
        """Up to `room` messages, those first that iteration has left over."""
        room = self._max_poll if room is None else room
        deadline = None if timeout is None else self._broker.clock.monotonic() + timeout
        yield from self.ready()
        messages: list[DeliveredMessage] = []
        if self._take_wakeup():
            return messages
        messages = self.store.take(room) or (yield from self._receive(room, deadline))
        self._delivered.update({message.partition for message in messages})
        return messages

    def next(self) -> Steps[DeliveredMessage | None]:
        """The next message, as long as it takes; None when woken, or when all is over."""
        try:
            yield from self.ready()
            if not self.store and not self._take_wakeup():
                self.store.add((yield from self._receive(self._max_poll, None)))
        except DMQError:
            if self.is_over:
                return None
            raise
        if not self.store or self._take_wakeup():
            return None
        self._touch()
        (message,) = self.store.take(1)
        self._delivered.add(message.partition)
        return message

    def _receive(self, room: int, deadline: float | None) -> Steps[list[DeliveredMessage]]:
        ask, clock = self.group.ref.call, self._broker.clock
        while True:
            polled = ask(
                ConsumerGroupActor.poll_session, self.session, self._heard, room, deadline,
                frozenset(self.paused), self._woken,
            )  # fmt: skip
            now = clock.monotonic()
            wait = None if deadline is None else max(deadline - now, 0.0) + self._call_timeout
            try:
                answer: list[DeliveredMessage] = yield polled, wait
            except DMQError:
                yield from self.ready()  # which knows better, if it is over
                raise
            messages = self._still_owned(answer)
            if messages:
                return messages
            heard = self._heard
            yield from self.ready()
            if self._take_wakeup():
                return []
            if heard is self._heard and deadline is not None and deadline <= clock.monotonic():
                return []

    def _still_owned(self, messages: list[DeliveredMessage]) -> list[DeliveredMessage]:
        """Without what a rebalance has given to others while the answer was on its way."""
        since = self.session.assignment.since
        if since is self._heard.since or self.commits_itself:
            return messages
        return [m for m in messages if m.generation >= since.get(m.partition, m.generation + 1)]

    # Completing

    def acknowledge(
        self, message: DeliveredMessage, *, success: bool, error: BaseException | str | None = None
    ) -> Steps[AckResult]:
        """Complete a message of this group, or count a failure of it."""
        yield from self.join()
        promise = acknowledge(self.group, message, success, error)
        if not success:
            self.store.failed(message)
        result: AckResult = yield promise, self._call_timeout
        if result is AckResult.STALE:
            self._check()
        return result

    def acknowledge_many(self, messages: Sequence[DeliveredMessage]) -> Steps[list[AckResult]]:
        """Complete messages of this group."""
        yield from self.join()
        results: list[AckResult] = yield self._ask(ConsumerGroupActor.acknowledge_many, messages)
        if AckResult.STALE in results:
            self._check()
        return results

    def give_back(self, messages: Sequence[DeliveredMessage]) -> Steps[None]:
        """Undo the delivery of messages that nobody has looked at."""
        yield self._ask(ConsumerGroupActor.give_back, self.session, messages)

    def complete_later(self, messages: Sequence[DeliveredMessage]) -> None:
        """As `acknowledge_many`, without waiting; what comes after it comes after it."""
        self.group.ref.send(ConsumerGroupActor.acknowledge_many, messages)

    def fail_later(self, message: DeliveredMessage, error: BaseException) -> None:
        """Count a failure without waiting."""
        try:
            acknowledge(self.group, message, success=False, error=error)
        except InvalidArgumentError:  # the handler has made a value of it that cannot be copied
            acknowledge(self.group, message.with_value(None), success=False, error=error)
        self.store.failed(message)

    def return_store(self) -> None:
        """Give back what is in store: nobody will look at it here."""
        self._return(self.store.take(len(self.store)))

    def commit(self, offsets: Mapping[int, int] | None) -> Steps[dict[int, int]]:
        """Complete what was delivered to this consumer, or up to these offsets."""
        self._check()
        yield from self.join()
        delivered = frozenset(self._delivered if offsets is None else ())
        answer: tuple[dict[int, int], list[int]] = yield self._ask(
            ConsumerGroupActor.commit_session, self.session, self._heard, delivered, offsets,
            self.store.ranges(),
        )  # fmt: skip
        committed, lost = answer
        self._delivered -= delivered
        if lost and not self.commits_itself:
            raise StaleAssignmentError(
                f"partitions {lost} went to other members since the last poll, who get what was "
                "not completed of them; the rest is committed. Poll again to go on"
            )
        return committed

    # Offsets

    def seek(self, partition: int, offset: int) -> Steps[int]:
        """Move the position of the group in a partition that this consumer owns."""
        yield from self.ready()
        self._return(self.store.remove((partition,)))
        moved_to: int = yield self._ask(
            ConsumerGroupActor.seek_session, self.session, self._heard, partition, offset
        )
        return moved_to

    def seek_each(self, partitions: Sequence[int], offset: int) -> Steps[dict[int, int]]:
        """Move the positions in these partitions, or in all that are owned."""
        yield from self.ready()
        moved: dict[int, int] = {}
        for partition in partitions or self.assignment:
            moved[partition] = yield from self.seek(partition, offset)
        return moved

    def seek_to_timestamp(
        self, partitions: Sequence[int], timestamp: float
    ) -> Steps[dict[int, int]]:
        """Move to the first messages that were stored at this time or later."""
        yield from self.ready()
        moved: dict[int, int] = {}
        for partition in partitions or self.assignment:
            self._broker.directory.partition(self.group.topic.name, partition)
            ref = self.group.topic.partitions[partition]
            while partition not in moved:
                offset = yield ref.call(PartitionActor.offset_at, timestamp), self._call_timeout
                with suppress(InvalidOffsetError):  # retention was faster
                    moved[partition] = yield from self.seek(partition, offset)
        return moved

    def offsets(self, partition: int) -> Steps[tuple[int, int]]:
        """The committed offset of a partition, and that of the next message to be seen here."""
        yield from self.ready()
        offsets = yield self._ask(
            ConsumerGroupActor.offsets, self.session, self._heard, (partition,)
        )
        committed, position = offsets[partition]
        first = self.store.first_offset(partition)
        return committed, position if first is None else first

    def lag(self) -> Steps[dict[int, int]]:
        """How many messages of its partitions are not completed yet."""
        yield from self.ready()
        lags: dict[int, int] = yield self._ask(ConsumerGroupActor.lag)
        return {partition: lags[partition] for partition in sorted(self._heard.since)}

    def pause(self, partitions: Sequence[int]) -> Steps[None]:
        """Take nothing of these partitions until they are resumed."""
        yield from self.ready()
        yield self._ask(ConsumerGroupActor.check_session, self.session, self._heard, partitions)
        self.paused.update(partitions)
        self._return(self.store.remove(partitions))

    def resume(self, partitions: Sequence[int]) -> None:
        """Take messages of these partitions again, or of all."""
        self.paused -= set(partitions or self.paused)

    # Tools

    def _take_wakeup(self) -> bool:
        with self._door:
            before, self._woken = self._woken, self.session.wakeups
        return before != self._woken

    def _touch(self) -> None:
        limits = self.session.max_poll_interval, self.session.session_timeout
        shortest = min((limit for limit in limits if limit is not None), default=None)
        now = self._broker.clock.monotonic()
        if shortest is not None and now >= self._touch_at:
            self._touch_at = now + shortest / 10
            self.group.ref.send(ConsumerGroupActor.touch, self.session, now)
