"""`Membership`: one consumer in its group, as its own side sees it.

What `Consumer` and `AsyncConsumer` have in common. Its methods are steps (see `steps`); all but
`wakeup`, `close` and those that complete messages are for one thread or task at a time.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._actors.liveness import ThreadWatch
from dmq_actors._actors.partition import PartitionActor
from dmq_actors._actors.proxies import acknowledge
from dmq_actors._actors.session import NOTHING
from dmq_actors._actors.turn import Turn
from dmq_actors.config import AckResult, Delivery
from dmq_actors.errors import (
    ConsumerClosedError,
    DMQError,
    InvalidOffsetError,
    StaleAssignmentError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from dmq_actors._actors.broker import Broker
    from dmq_actors._actors.promise import Promise
    from dmq_actors._actors.ref import BrokerRef
    from dmq_actors._actors.session import Assignment, Session
    from dmq_actors._actors.steps import Steps, Wait
    from dmq_actors._core.scan import Range
    from dmq_actors.messages import DeliveredMessage

    Listener = Callable[[list[int]], Awaitable[None] | None]

P = ParamSpec("P")
T = TypeVar("T")


class Listeners(NamedTuple):
    """What a consumer calls when its partitions change; each gets partition numbers, sorted."""

    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None


class Membership:
    """A consumer that has joined a group, or is about to."""

    def __init__(
        self,
        broker: Broker,
        group_id: str,
        session: Session,
        listeners: Listeners,
        max_poll: int,
        call_timeout: float,
    ) -> None:
        broker.check_open()
        self.group = broker.directory.group(group_id)
        self.session = session
        self.turn = Turn(f"consumer {session.consumer_id!r} of group {group_id!r}")
        self.paused: set[int] = set()
        self.closed = False
        self._closing = False
        self._broker = broker
        self._listeners = listeners
        self._max_poll = max_poll
        self._call_timeout = call_timeout
        self._heard: Assignment = NOTHING
        self._buffer: deque[DeliveredMessage] = deque()
        self._delivered: set[int] = set()
        self._door = threading.Lock()
        self._woken = 0
        self._touch_at = 0.0
        # Both may happen where no lock can be taken, so they only put something into a queue.
        expel = partial(_expel, self.group.ref, session)
        died = partial(expel, "its thread has ended")
        self._watch = ThreadWatch(partial(broker.schedule, died))
        unclosed = partial(expel, "it was garbage-collected without having been closed")
        self._finalizer = weakref.finalize(self, broker.schedule, unclosed)
        self._finalizer.atexit = False
        self._is_member = False
        self._joined = self.group.ref.call(ConsumerGroupActor.join, session)

    def join(self) -> Steps[None]:
        """Wait until this is a member.

        Raises:
            ConsumerExistsError: the group has a member of this id.
        """
        if not self._is_member:
            yield self._joined, self._call_timeout
            self._is_member = True

    # Reading

    def poll(self, room: int | None, timeout: float | None) -> Steps[list[DeliveredMessage]]:
        """Up to `room` messages, those first that iteration has left over."""
        room = self._max_poll if room is None else room
        deadline = None if timeout is None else self._broker.clock.monotonic() + timeout
        yield from self._ready()
        messages: list[DeliveredMessage] = []
        if self._take_wakeup():
            return messages
        if self._buffer:
            messages = [self._buffer.popleft() for _ in range(min(room, len(self._buffer)))]
        else:
            messages = yield from self._receive(room, deadline)
        self._delivered.update({message.partition for message in messages})
        return messages

    def next(self) -> Steps[DeliveredMessage | None]:
        """The next message, as long as it takes; None when woken, or when all is over."""
        try:
            yield from self._ready()
            if not self._buffer and not self._take_wakeup():
                self._buffer.extend((yield from self._receive(self._max_poll, None)))
        except DMQError:
            if self.closed or self._broker.is_closed:
                return None
            raise
        if not self._buffer or self._take_wakeup():
            return None
        self._touch()
        message = self._buffer.popleft()
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
                yield from self._ready()  # which knows better, if it is over
                raise
            messages = self._still_owned(answer)
            if messages:
                return messages
            heard = self._heard
            yield from self._ready()
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

    @property
    def assignment(self) -> list[int]:
        """The partitions it owns at this moment."""
        return sorted(self.session.assignment.since) if self.session.why_ended is None else []

    @property
    def commits_itself(self) -> bool:
        """Whether what is delivered is completed by that."""
        return self.group.config.delivery is Delivery.AT_MOST_ONCE

    # Completing

    def acknowledge(
        self, message: DeliveredMessage, *, success: bool, error: BaseException | str | None = None
    ) -> Steps[AckResult]:
        """Complete a message of this group, or count a failure of it."""
        yield from self.join()
        promise = acknowledge(self.group, message, success, error)
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

    def commit(self, offsets: Mapping[int, int] | None) -> Steps[dict[int, int]]:
        """Complete what was delivered to this consumer, or up to these offsets."""
        self._check()
        yield from self.join()
        delivered = frozenset(self._delivered if offsets is None else ())
        answer: tuple[dict[int, int], list[int]] = yield self._ask(
            ConsumerGroupActor.commit_session, self.session, self._heard, delivered, offsets,
            self._unseen(),
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
        yield from self._ready()
        self._drop((partition,))
        moved_to: int = yield self._ask(
            ConsumerGroupActor.seek_session, self.session, self._heard, partition, offset
        )
        return moved_to

    def seek_each(self, partitions: Sequence[int], offset: int) -> Steps[dict[int, int]]:
        """Move the positions in these partitions, or in all that are owned."""
        yield from self._ready()
        moved: dict[int, int] = {}
        for partition in partitions or self.assignment:
            moved[partition] = yield from self.seek(partition, offset)
        return moved

    def seek_to_timestamp(
        self, partitions: Sequence[int], timestamp: float
    ) -> Steps[dict[int, int]]:
        """Move to the first messages that were stored at this time or later."""
        yield from self._ready()
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
        yield from self._ready()
        offsets = yield self._ask(
            ConsumerGroupActor.offsets, self.session, self._heard, (partition,)
        )
        committed, position = offsets[partition]
        ahead = [m.offset for m in self._buffer if m.partition == partition]
        return committed, min([position, *ahead])

    def lag(self) -> Steps[dict[int, int]]:
        """How many messages of its partitions are not completed yet."""
        yield from self._ready()
        lags: dict[int, int] = yield self._ask(ConsumerGroupActor.lag)
        return {partition: lags[partition] for partition in sorted(self._heard.since)}

    def pause(self, partitions: Sequence[int]) -> Steps[None]:
        """Take nothing of these partitions until they are resumed."""
        yield from self._ready()
        yield self._ask(ConsumerGroupActor.check_session, self.session, self._heard, partitions)
        self.paused.update(partitions)
        self._drop(partitions)

    def resume(self, partitions: Sequence[int]) -> None:
        """Take messages of these partitions again, or of all."""
        self.paused -= set(partitions or self.paused)

    # The end

    def wakeup(self) -> None:
        """End the poll that waits, or the next one. Any thread."""
        with self._door:
            self.session.wakeups += 1
        self.group.ref.send(ConsumerGroupActor.wake, self.session)

    def close(self, timeout: float) -> Steps[None]:
        """Leave the group, once. Any thread; listeners only where nobody else is inside."""
        with self._door:
            first, self._closing = not self._closing, True
        if not first:
            return
        self._finalizer.detach()
        inside = self.turn.take()
        try:
            if inside:
                yield from self._tell_revoked()
        finally:
            self.closed = True
            try:
                yield from self._leave(list(self._buffer) if inside else [], timeout)
            finally:
                if inside:
                    self.turn.leave()

    def _leave(self, unseen: list[DeliveredMessage], timeout: float) -> Steps[None]:
        try:
            yield self.group.ref.call(ConsumerGroupActor.leave, self.session, unseen), timeout
        except DMQError:
            if self.session.why_ended is None and not self._broker.is_closed:
                raise

    def abandon(self) -> None:
        """Leave without waiting: whoever made this does not want it any more."""
        self._finalizer.detach()
        self.closed = True
        self.group.ref.send(ConsumerGroupActor.leave, self.session)

    # News of the group

    def _ready(self) -> Steps[None]:
        """Be in the group, alive, and know what is owned: the start of all that reads."""
        self._watch.mind()
        yield from self.join()
        while True:
            if self.closed:
                yield from self._tell_revoked()
            elif self.session.why_ended is not None:
                yield from self._tell_lost()
            self._check()
            if self._heard is self.session.assignment:
                return
            before, self._heard = self._heard.since, self.session.assignment
            after = self._heard.since
            lost = sorted(p for p in before if after.get(p) != before[p])
            self._forget(lost)
            yield from self._tell(self._listeners.on_revoked, lost)
            new = sorted(p for p in after if before.get(p) != after[p])
            yield from self._tell(self._listeners.on_assigned, new)

    def _check(self) -> None:
        if self.closed:
            raise ConsumerClosedError(
                f"consumer {self.session.consumer_id!r} was closed; make a new one"
            )
        if self.session.why_ended is not None:
            raise self.session.why_ended()

    def _tell_revoked(self) -> Steps[None]:
        """This consumer ends; as long as it is told, it still owns what it owned."""
        try:
            yield from self._tell(self._listeners.on_revoked, sorted(self._heard.since))
        finally:
            self._heard = NOTHING

    def _tell_lost(self) -> Steps[None]:
        before, self._heard = self._heard.since, NOTHING
        self._forget(before)
        listener = self._listeners.on_lost or self._listeners.on_revoked
        yield from self._tell(listener, sorted(before))

    @staticmethod
    def _tell(listener: Listener | None, partitions: list[int]) -> Steps[None]:
        if listener is not None and partitions:
            answer = listener(partitions)
            if answer is not None:
                yield answer, None

    # What iteration has in store

    def _forget(self, partitions: Iterable[int]) -> None:
        lost = set(partitions)
        self.paused -= lost
        self._delivered -= lost
        if not self.commits_itself:
            self._buffer = deque(m for m in self._buffer if m.partition not in lost)

    def _drop(self, partitions: Iterable[int]) -> None:
        """Give back what is in store of these partitions."""
        dropped = [m for m in self._buffer if m.partition in partitions]
        if dropped:
            self._buffer = deque(m for m in self._buffer if m.partition not in partitions)
            self.group.ref.send(ConsumerGroupActor.give_back, self.session, dropped)

    def _unseen(self) -> dict[int, list[Range]]:
        unseen: dict[int, list[Range]] = {}
        for message in self._buffer:
            unseen.setdefault(message.partition, []).append((message.offset, message.offset + 1))
        return unseen

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
            self.group.ref.send(ConsumerGroupActor.touch, self.session)

    def _ask(
        self,
        method: Callable[Concatenate[ConsumerGroupActor, P], Any],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Wait:
        promise: Promise[Any] = self.group.ref.call(method, *args, **kwargs)
        return promise, self._call_timeout


def _expel(group: BrokerRef[ConsumerGroupActor], session: Session, cause: str) -> None:
    group.send(ConsumerGroupActor.expel, session, cause)
