"""`SeededScheduler`: all actors in the thread of the test, in an order that a seed decides.

A race between actors depends on which of them gets its turn first. Here that is drawn from a seed,
so an order that fails can be run again.
"""

from __future__ import annotations

import random
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from dmq_actors._runtime.filtered_mailbox import name_of
from dmq_actors._runtime.gate import Gates, ThreadGate
from dmq_actors._runtime.here import here
from dmq_actors._runtime.ref import BrokerRef
from dmq_actors._runtime.scheduler import Scheduler
from dmq_actors.errors import (
    BlockingInActorError,
    BrokerTimeoutError,
    ConcurrentUseError,
    InvalidArgumentError,
    InvalidTypeError,
)
from dmq_actors.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    import pykka

    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.filtered_mailbox import FilteredMailbox
    from dmq_actors._runtime.mailbox import Envelope
    from dmq_actors._runtime.promise import Promise

_ENOUGH = 1_000_000
"""Turns after which actors that keep each other busy are called a livelock."""


class SeededScheduler(Scheduler):
    """Runs the actors of one broker in the thread that made it, in an order drawn from a seed.

    Whenever that thread waits for an answer, one actor after the other handles one message, and a
    seed decides which. When no actor has anything to do and there is still no answer, the clock
    goes on to the next timer by itself. When there is no timer either, nobody will ever answer,
    and the wait ends at once with `BrokerTimeoutError`. So nothing sleeps and nothing hangs; a
    finite timeout runs on the manual clock.

    The same seed and the same calls make the same order, also in another process; see `trace`.

    Args:
        seed: any whole number.

    Thread safety:
        The broker belongs to the thread that made it; a call from another thread, and ``await``,
        raise `ConcurrentUseError`. What other threads would do, do with promises: calls through
        ``mq.coordinator`` and ``mq.group_actor(...)`` return at once and run when somebody waits.

    Example:
        >>> def race(seed):
        ...     scheduler = SeededScheduler(seed)
        ...     with MessageQueue(scheduler=scheduler, clock=ManualClock()) as mq:
        ...         _ = mq.create_topic("t", 2)
        ...         first = mq.coordinator.publish("t", Message(1), partition=0)
        ...         second = mq.coordinator.publish("t", Message(2), partition=1)
        ...         _ = first.get(), second.get()
        ...     return scheduler.trace
        >>> race(7) == race(7)
        True
        >>> len({tuple(race(seed)) for seed in range(20)}) > 1
        True
    """

    turn = 1

    def __init__(self, seed: int) -> None:
        super().__init__()
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InvalidTypeError(f"seed is a whole number, found {type(seed).__name__}")
        self.seed = seed
        """The number that decides the order."""

        self.trace: list[str] = []
        """What was handled, in order: the name of the actor and of the message."""

        self._random = random.Random(seed)  # noqa: S311  # an order, not a secret
        self._due: list[Callable[[], object]] = []
        self.schedule = self._due.append
        self._clock: ManualClock | None = None
        self._owner = 0
        self._interrupt: BaseException | None = None
        self.gates = _SeededGates(self)
        self.filters.append(self._note)

    def __repr__(self) -> str:
        return f"SeededScheduler({self.seed})"

    def step(self) -> bool:
        """Give one actor its turn: one message at most. No time passes.

        Returns:
            False if no actor has anything to do.
        """
        self.check_caller()
        if here.current is not None or here.serves:
            inside = here.current or "a done-callback"
            raise BlockingInActorError(
                f"{inside} cannot give others a turn in the middle of its own"
            )
        if not self._due:
            return False
        self._due.pop(self._random.randrange(len(self._due)))()
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt
        return True

    def run_until_idle(self) -> None:
        """Give the actors their turns until none has anything to do. No time passes.

        Raises:
            BrokerTimeoutError: they keep each other busy without end.
        """
        for _ in range(_ENOUGH):
            if not self.step():
                return
        raise self._no_answer(f"the actors are still busy after {_ENOUGH} turns")

    def drive(self, is_done: Callable[[], bool], timeout: float | None) -> bool:
        """Let the actors run, and time pass, until this is so.

        Args:
            is_done: whether it is.
            timeout: seconds on the manual clock; None for as long as it takes.

        Returns:
            False if that much time has passed.

        Raises:
            BrokerTimeoutError: it will never be so.
        """
        clock = cast("ManualClock", self._clock)
        deadline = None if timeout is None else clock.monotonic() + max(timeout, 0.0)
        for _ in range(_ENOUGH):
            if is_done():
                return True
            if self.step():
                continue
            due = clock.next_timer()
            if due is None:
                raise self._no_answer("no actor has anything to do, and no timer is set")
            if deadline is not None and due > deadline:
                clock.advance(max(deadline - clock.monotonic(), 0.0))
                return False
            clock.advance_to_next_timer()
        raise self._no_answer(f"the actors are still busy after {_ENOUGH} turns")

    def _no_answer(self, why: str) -> BrokerTimeoutError:
        recent = ", ".join(self.trace[-5:]) or "nothing"
        return BrokerTimeoutError(
            f"there will be no answer: {why} (seed {self.seed}; handled last: {recent})"
        )

    def _note(self, mailbox: FilteredMailbox, envelope: Envelope) -> Envelope:
        self.trace.append(f"{mailbox.owner} {name_of(envelope[0]) or type(envelope[0]).__name__}")
        return envelope

    # For the broker

    def bind(self, clock: Clock) -> None:
        """See `Scheduler.bind`."""
        if not isinstance(clock, ManualClock):
            raise InvalidTypeError(
                "a scheduler with a seed needs a clock that it can move: "
                "MessageQueue(scheduler=SeededScheduler(7), clock=ManualClock())"
            )
        if self._clock is not None:
            raise InvalidArgumentError(
                f"this scheduler ({self}) runs another broker already; make one for each"
            )
        self._clock = clock
        self._owner = threading.get_ident()

    def check_caller(self) -> None:
        """See `Scheduler.check_caller`."""
        if threading.get_ident() != self._owner:
            raise ConcurrentUseError(
                f"a broker with a scheduler ({self}) belongs to the thread that made it; in "
                "place of threads use promises, such as mq.coordinator.publish(...) returns"
            )

    def own(self, promise: Promise[Any]) -> None:
        """See `Scheduler.own`."""
        promise.gates = self.gates

    def run_soon(self, work: Callable[[], object]) -> None:
        """See `Scheduler.run_soon`; as a thread that serves would run it."""
        self.schedule(partial(_serve, work))

    def survived(self, error: BaseException) -> None:
        """A Ctrl-C, or the alarm of a test runner, was meant for this thread, not for the actor."""
        if not isinstance(error, SystemExit):
            self._interrupt = error

    def new_ref(self, actor: pykka.Actor) -> BrokerRef[Any]:
        """See `Scheduler.new_ref`."""
        return _SeededRef(actor, self)

    def stop(self) -> None:
        """Nothing: there is no thread to end."""

    def join(self, deadline: float) -> list[str]:  # noqa: ARG002  # nobody to wait for
        """Do what is left to do."""
        self.run_until_idle()
        return []


def _serve(work: Callable[[], object]) -> None:
    here.serves = True
    try:
        work()
    finally:
        here.serves = False


class _SeededRef(BrokerRef[Any]):
    """A reference whose promises are waited for by running the actors."""

    def __init__(self, actor: Any, scheduler: SeededScheduler) -> None:
        super().__init__(actor, scheduler.gates)
        self._scheduler = scheduler

    def deliver(self, message: Any, reply: Promise[Any] | None) -> None:
        self._scheduler.check_caller()
        super().deliver(message, reply)

    def _ask(self, message: Any) -> Promise[Any]:
        reply = self._new_reply()
        self.deliver(
            message, reply
        )  # whoever waits for it runs the actors, in the order of the seed
        return reply


class _SeededGates(Gates):
    __slots__ = ("_scheduler",)

    def __init__(self, scheduler: SeededScheduler) -> None:
        super().__init__(scheduler.run_soon)
        self._scheduler = scheduler

    def for_thread(self) -> ThreadGate:
        return _SeededGate(self._scheduler)

    def for_loop(self, loop: asyncio.AbstractEventLoop) -> NoReturn:  # noqa: ARG002
        raise ConcurrentUseError(
            f"a broker with a scheduler ({self._scheduler}) cannot be awaited: it cannot know what "
            "other tasks are about to do; call .get() on the promise"
        )


class _SeededGate(ThreadGate):
    __slots__ = ("_scheduler",)

    def __init__(self, scheduler: SeededScheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def wait(self, timeout: float | None) -> bool:
        return self._scheduler.drive(self._is_open, timeout)

    def _is_open(self) -> bool:
        return not self._lock.locked()
