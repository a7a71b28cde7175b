"""`Membership`: one consumer in its group, as its own side sees it.

What `Consumer` and `AsyncConsumer` have in common. Its methods are steps (see `steps`); all but
`wakeup`, `close` and those that complete messages are for one thread or task at a time.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._actors.session import NOTHING
from dmq_actors._clients.store import Store
from dmq_actors._clients.turn import Turn
from dmq_actors._runtime.liveness import ThreadWatch
from dmq_actors.config import Delivery
from dmq_actors.errors import (
    ConsumerClosedError,
    DMQError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from dmq_actors._actors.broker import Broker
    from dmq_actors._actors.session import Assignment, Session
    from dmq_actors._clients.steps import Steps, Wait
    from dmq_actors._runtime.promise import Promise
    from dmq_actors._runtime.ref import BrokerRef
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
        self.store = Store(self.group.config.retry_order)
        self._delivered: set[int] = set()
        self._door = threading.Lock()
        self._woken = 0
        self._touch_at = 0.0
        # Both may happen where no lock can be taken, so they only put something into a queue.
        expel = partial(_expel, self.group.ref, session)
        died = partial(expel, "its thread has ended")
        self._watch = ThreadWatch(partial(broker.run_soon, died))
        unclosed = partial(expel, "it was garbage-collected without having been closed")
        self._finalizer = weakref.finalize(self, broker.run_soon, unclosed)
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

    @property
    def assignment(self) -> list[int]:
        """The partitions it owns at this moment."""
        return sorted(self.session.assignment.since) if self.session.why_ended is None else []

    @property
    def commits_itself(self) -> bool:
        """Whether what is delivered is completed by that."""
        return self.group.config.delivery is Delivery.AT_MOST_ONCE

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
                yield from self._leave(list(self.store) if inside else [], timeout)
            finally:
                if inside:
                    self.turn.leave()

    def _leave(self, unseen: list[DeliveredMessage], timeout: float) -> Steps[None]:
        try:
            yield self.group.ref.call(ConsumerGroupActor.leave, self.session, unseen), timeout
        except DMQError:
            if self.session.why_ended is None and not self._broker.is_closed:
                raise

    @property
    def is_over(self) -> bool:
        """Whether this was closed, by itself or with its broker."""
        return self.closed or self._broker.is_closed

    def abandon(self) -> None:
        """Leave without waiting: whoever made this does not want it any more."""
        self._finalizer.detach()
        self.closed = True
        self.group.ref.send(ConsumerGroupActor.leave, self.session)

    # News of the group

    def ready(self) -> Steps[None]:
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
                self._return(self.store.remove_held())
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

    def _forget(self, partitions: Iterable[int]) -> None:
        lost = set(partitions)
        self.paused -= lost
        self._delivered -= lost
        if not self.commits_itself:
            self.store.remove(lost)

    # Tools

    def _return(self, messages: list[DeliveredMessage]) -> None:
        if messages:
            self.group.ref.send(ConsumerGroupActor.give_back, self.session, messages)

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
