"""`Sessions`: the part of a group actor that knows which members are `Consumer` objects.

It tells them what they own, and expels those that were silent for too long. A sign of life costs
a look at the clock: there is one timer for the whole group, set for the earliest time at which
anybody can be late, and it looks again when it fires.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dmq_actors._actors.session import Assignment
from dmq_actors.errors import ConsumerExpelledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dmq_actors._actors.poll_service import Resume
    from dmq_actors._actors.session import Session
    from dmq_actors._core.group_state import GroupState
    from dmq_actors._runtime.clock import Clock, Timer
    from dmq_actors._runtime.promise import Promise
    from dmq_actors.errors import DMQError


class Sessions:
    """The sessions of one group, by consumer id."""

    def __init__(
        self,
        state: GroupState,
        clock: Clock,
        resume: Resume,
        expel: Callable[[Session, str], None],
    ) -> None:
        self._state = state
        self._clock = clock
        self._resume = resume
        self._expel = expel
        self._sessions: dict[str, Session] = {}
        self._timer: Timer | None = None

    def add(self, session: Session) -> None:
        """A consumer has joined."""
        session.polled_at = session.seen_at = now = self._clock.monotonic()
        self._sessions[session.consumer_id] = session
        self._watch(session.due(now))

    def end(self, consumer_id: str, why: Callable[[], DMQError]) -> None:
        """A member is one no more; harmless for those without a session."""
        session = self._sessions.pop(consumer_id, None)
        if session is not None:
            session.why_ended = why

    def end_all(self, why: Callable[[], DMQError]) -> None:
        """The group ends."""
        if self._timer is not None:
            self._timer.cancel()
        for consumer_id in list(self._sessions):
            self.end(consumer_id, why)

    def check(self, session: Session) -> None:
        """Refuse the work of a consumer that is no member any more, also if its id is one again.

        Raises:
            DMQError: why it is none.
        """
        if self._sessions.get(session.consumer_id) is not session:
            group_id, consumer_id = self._state.group_id, session.consumer_id
            if session.why_ended is not None:
                raise session.why_ended()
            raise expelled_error(group_id, consumer_id, "")

    def is_current(self, session: Session) -> bool:
        """Whether this consumer is a member."""
        return self._sessions.get(session.consumer_id) is session

    def tell(self) -> None:
        """There was a rebalance: let every consumer know what it owns."""
        state = self._state
        for consumer_id, session in self._sessions.items():
            owned = state.assignment.get(consumer_id, ())
            since = {partition: state.owned_since[partition] for partition in owned}
            session.assignment = Assignment(state.generation, since)

    def of(self, consumer_ids: Iterable[str]) -> set[str]:
        """Those of these members that have a session."""
        return {consumer_id for consumer_id in consumer_ids if consumer_id in self._sessions}

    def workers_wait(self) -> bool:
        """Whether every worker of a pool waits for messages."""
        return all(session.polls for session in self._sessions.values() if session.is_worker)

    # Signs of life

    def saw(self, consumer_id: str | None) -> None:
        """A member has done something other than polling."""
        session = self._sessions.get(consumer_id) if consumer_id is not None else None
        if session is not None:
            session.seen_at = self._clock.monotonic()

    def poll_began(self, session: Session, promise: Promise[Any]) -> None:
        """A member waits in a poll: it is alive until that ends, and has done something then."""
        session.polls += 1
        promise.when_done(partial(self._poll_ended, session))

    def saw_working(self, session: Session, at: float) -> None:
        """A member worked through what it had polled: it was neither silent nor stuck."""
        session.polled_at = max(session.polled_at, at)
        session.seen_at = max(session.seen_at, at)

    def restart(self) -> None:
        """A message of this actor was lost: it may have been the timer's."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._look(self._clock.monotonic())

    def _poll_ended(self, session: Session, _promise: object) -> None:
        session.polls -= 1
        session.polled_at = session.seen_at = self._clock.monotonic()

    def _watch(self, due: float) -> None:
        if due == float("inf") or (self._timer is not None and self._timer.due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(due, partial(self._resume, self._timer_fired, due))

    def _timer_fired(self, due: float) -> None:
        self._timer = None
        self._look(due)

    def _look(self, now: float) -> None:
        """Expel who was late at this time; who shows up while this waited its turn is not."""
        for session in list(self._sessions.values()):
            if session.due(self._clock.monotonic()) <= now:
                self._expel(session, _silence(session, now))
        if self._sessions:
            self._watch(
                min(session.due(self._clock.monotonic()) for session in self._sessions.values())
            )


def expelled_error(group_id: str, consumer_id: str, cause: str) -> ConsumerExpelledError:
    """The error for the work of a consumer that is no member any more."""
    because = f": {cause}" if cause else ""
    return ConsumerExpelledError(
        f"consumer {consumer_id!r} is no member of group {group_id!r} any more{because}; "
        "its partitions have other owners. Make a new Consumer to go on"
    )


def _silence(session: Session, now: float) -> str:
    """What the consumer did not do, and which option to look at."""
    interval = session.max_poll_interval
    if interval is not None and session.polled_at + interval <= now:
        return (
            f"it did not poll for max_poll_interval={interval:g} s; poll fewer messages at a time, "
            "or allow for more time"
        )
    return f"it showed no sign of life for session_timeout={session.session_timeout:g} s"
