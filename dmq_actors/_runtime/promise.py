"""`Promise`: the answer of an actor, now or later.

It is the `pykka.Future` of our actors. There is no lock in it, because a signal handler, a
finalizer or a log handler may interrupt any step and ask the same promise. Each step is one call of
a function in C, and their order makes it right: an outcome is noted *before* the callbacks are
looked at, and a callback is noted *before* the outcome is looked at, so one of the two sides sees
the other.

A reader's thread finishes the answer (copies values, puts a batch in order), so that no code of a
user runs in an actor.
"""

from __future__ import annotations

import asyncio
import queue
import sys
from contextlib import suppress
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pykka

from dmq_actors import events
from dmq_actors._runtime.abandonment import Abandonment
from dmq_actors._runtime.failures import safe_repr
from dmq_actors._runtime.forks import fork_count, forked_error
from dmq_actors._runtime.gate import Gates
from dmq_actors._runtime.here import check_may_wait, here
from dmq_actors._runtime.joint import settle_when_all_are
from dmq_actors._runtime.log import log
from dmq_actors.errors import BlockingInActorError, BrokerClosedError, BrokerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

T = TypeVar("T")
R = TypeVar("R")
_Outcome = tuple[Any, "BaseException | None", "Callable[[Any], Any] | None"]
"""A value, or an error; and what turns the value into the answer, in the reader's thread."""


class Promise(pykka.Future[T]):
    """An answer that will come: wait with `get`, or ``await`` it, or add a callback.

    Thread safety: every method may be called from any thread, also from a signal handler or a
    finalizer.
    """

    _get_hook: Any = None
    _abandonment: Callable[[], object] | None = None
    _abandoned = False
    gates: Gates = Gates()
    """How to wait for it, and who runs the callbacks of users."""

    def __init__(self) -> None:
        # Not calling super: pykka's attributes have class-level defaults here, and a publish that
        # nobody waits for should cost as little as possible.
        self._outcomes: list[_Outcome] = []  # the first one counts
        self._callbacks: list[Callable[[], object]] = []
        self._forks = fork_count()

    def __repr__(self) -> str:
        outcomes = self._outcomes
        state = "pending" if not outcomes else "failed" if outcomes[0][1] else "done"
        return f"<Promise {state}>"

    @classmethod
    def resolved(cls, value: Any, finish: Callable[[Any], T] | None = None) -> Promise[T]:
        """A promise that is kept already."""
        promise = cls()
        promise._outcomes.append((value, None, finish))
        return promise

    # For the reader

    def done(self) -> bool:
        """Whether the answer is there."""
        return bool(self._outcomes)

    def get(self, *, timeout: float | None = None) -> T:
        """Wait for the answer.

        Args:
            timeout: seconds; None waits as long as it takes. The answer can be fetched again
                later: a time-out takes nothing back.

        Raises:
            BrokerTimeoutError: no answer in time. The call may still take effect.
            BlockingInActorError: called on a thread that must not wait (in a done-callback, or in
                a signal handler or finalizer that interrupted an actor) before the answer was
                there.
            DMQError: what the actor answered; for a stopped actor why it is gone.
        """
        if self._get_hook is not None:  # one that pykka made, of others
            self.resolve(self._get_hook(timeout))
            self._get_hook = None
        if not self._outcomes:
            self._wait(timeout)
        return self._read()

    def add_done_callback(self, callback: Callable[[Promise[T]], object]) -> None:
        """Call ``callback(promise)`` when the answer is there; at once, right here, if it is.

        Later it runs in the thread that serves the broker: keep it short, never wait in it. What it
        raises is logged and goes no further.
        """
        if not self._subscribe(partial(self._call_back, callback)):
            _guarded(partial(callback, self))

    def when_done(self, callback: Callable[[Promise[T]], object]) -> None:
        """As `add_done_callback`, but it runs in the thread that answers. For code of ours only."""
        if not self._subscribe(partial(callback, self)):
            _guarded(partial(callback, self))

    def __await__(self) -> Generator[Any, None, T]:
        gate = self.gates.for_loop(asyncio.get_running_loop())
        if self._subscribe(gate.open):
            try:
                if self._forks != fork_count():
                    raise forked_error()
                yield from gate.opened
            except BaseException:  # cancelled, or the coroutine was closed
                self._unsubscribe(gate.open)
                self.abandon()
                raise
        return self.get(timeout=0)

    def map(self, func: Callable[[T], R]) -> Promise[R]:
        """A promise of ``func(answer)``; `func` runs in the thread that reads it."""
        mapped: Promise[R] = Promise()
        mapped.gates = self.gates
        mapped.when_abandoned(self.abandon)
        self.when_done(lambda done: mapped._read_later(done, func))
        return mapped

    def filter(self: Promise[Iterable[R]], func: Callable[[R], bool]) -> Promise[Iterable[R]]:
        """A promise of the items of the answer for which `func` is true."""
        return self.map(lambda items: [item for item in items if func(item)])

    def join(self, *futures: pykka.Future[Any]) -> Promise[Iterable[Any]]:
        """A promise of the answers of this promise and the others, in order."""
        joint = gather([self, *cast("tuple[Promise[Any], ...]", futures)])
        return cast("Promise[Iterable[Any]]", joint)

    def reduce(self: Promise[Iterable[Any]], func: Callable[[Any, Any], R], *args: R) -> Promise[R]:
        """A promise of the items of the answer, reduced as by `functools.reduce`."""
        return self.map(lambda items: reduce(func, items, *args))

    def abandon(self) -> None:
        """Say that nobody will read the answer: a poll gives its messages back."""
        self._abandoned = True  # first: see when_abandoned
        self._run_abandonment()

    # For the one who answers

    def resolve(self, value: Any = None, finish: Callable[[Any], T] | None = None) -> bool:
        """Answer; False if it was answered before.

        `finish` turns the value into the answer, in the reader's thread.
        """
        return self._settle((value, None, finish))

    def fail(self, error: BaseException) -> bool:
        """Answer with an error; False if it was answered before."""
        return self._settle((None, _typed(error), None))

    def set(self, value: Any = None) -> None:
        """As pykka's: raise ``queue.Full`` if it was answered before."""
        if not self.resolve(value):
            raise queue.Full

    def set_exception(self, exc_info: Any = None) -> None:
        """As pykka's: the exception being handled, or that of an exc_info triple."""
        kind, error, traceback = exc_info or sys.exc_info()
        if error is None:
            error = kind() if kind is not None else RuntimeError("set_exception without exception")
        if not self.fail(error.with_traceback(traceback)):
            raise queue.Full

    def pipe_to(self, reply: Promise[Any]) -> None:
        """Let `reply` be answered as this one is."""
        abandonment, self._abandonment = self._abandonment, None
        if abandonment is not None:
            reply.when_abandoned(abandonment)
        self.when_done(reply._adopt)

    def when_abandoned(self, abandonment: Callable[[], object]) -> None:
        """What to do when the reader goes away without having read; at once if it has.

        It may be done twice, where two threads say so at the same time.
        """
        self._abandonment = abandonment  # first, and then the look: `abandon` does the converse
        if self._abandoned:
            self._run_abandonment()

    def peek(self) -> Any:
        """The unfinished answer of a promise that is done; raises its error."""
        if not self._outcomes:
            raise BlockingInActorError("peek() at a promise that is not done")
        value, error, _ = self._outcomes[0]
        if error is not None:
            raise error
        return value

    def _adopt(self, other: Promise[Any]) -> None:
        self._settle(other._outcomes[0])

    def _read_later(self, other: Promise[Any], func: Callable[[Any], Any]) -> None:
        error = other._outcomes[0][1]
        if error is not None:
            self.fail(error)
        else:
            self.resolve(other, lambda read: func(read.get(timeout=0)))

    def _settle(self, outcome: _Outcome) -> bool:
        outcomes = self._outcomes
        outcomes.append(outcome)  # the one step that decides between two who answer
        if outcomes[0] is not outcome:
            del outcomes[1:]
            self._run_callbacks()  # the first one may have been hit by an exception in between
            return False
        if self._callbacks:
            self._run_callbacks()
        return True

    def _run_callbacks(self) -> None:
        callbacks, thrown = self._callbacks, None
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # another thread took it
                break
            try:
                callback()
            except Exception as error:  # noqa: BLE001  # the others must still run
                _log_failed(callback, error)
            except BaseException as error:  # noqa: BLE001  # thrown into this thread from outside
                thrown = error
                _guarded(callback)  # twice is harmless for ours, not at all would not be
        if thrown is not None:
            raise thrown

    def _call_back(self, callback: Callable[[Promise[T]], object]) -> None:
        """Let a callback of a user's run, but not in the middle of our work."""
        work = partial(_guarded, partial(callback, self))
        run_soon = self.gates.run_soon
        if run_soon is None or (here.current is None and here.due is None):
            work()
        else:
            run_soon(work)

    def _read(self) -> T:
        value, error, finish = self._outcomes[0]
        if error is not None:
            try:
                raise error
            finally:
                del self, error  # else the traceback keeps this promise and its answer alive
        if finish is not None:
            # Whoever reads at the same time gets an answer of its own. If it raises, nothing was
            # read.
            value = finish(value)
            self._outcomes[0] = (value, None, None)
        abandonment, self._abandonment = self._abandonment, None
        _disarm(abandonment)
        return cast("T", value)

    def _wait(self, timeout: float | None) -> None:
        gate = self.gates.for_thread()
        if not self._subscribe(gate.open):
            return
        try:
            if self._forks != fork_count():
                raise forked_error()
            check_may_wait()
            if not gate.wait(timeout):
                raise BrokerTimeoutError(
                    f"no answer within {timeout} s; the outcome is unknown: the call may still "
                    "take effect"
                )
        except BaseException as error:
            self._unsubscribe(gate.open)
            if not isinstance(error, BrokerTimeoutError | BlockingInActorError):
                self.abandon()
            raise

    def _subscribe(self, callback: Callable[[], object]) -> bool:
        """Have this called when it is done; False, and it will not be, if it is."""
        if self._outcomes:
            return False
        self._callbacks.append(callback)
        if self._outcomes:  # meanwhile: whoever takes it out of the list runs it
            self._run_callbacks()
        return True

    def _unsubscribe(self, callback: Callable[[], object]) -> None:
        with suppress(ValueError):
            self._callbacks.remove(callback)

    def _run_abandonment(self) -> None:
        abandonment, self._abandonment = self._abandonment, None
        if abandonment is not None:
            abandonment()
            _disarm(abandonment)


def _guarded(callback: Callable[[], object]) -> None:
    """Run a callback by itself: what it raises is logged and goes no further."""
    try:
        callback()
    except BaseException as error:  # noqa: BLE001  # nobody else must suffer from it
        _log_failed(callback, error)


def _log_failed(callback: Callable[[], object], error: BaseException) -> None:
    log.error(events.CALLBACK_FAILED, callback=safe_repr(callback), exc_info=error)


def gather(promises: Iterable[Promise[Any]]) -> Promise[list[Any]]:
    """A promise of all the answers, in order; it fails with the first error, when all are done."""
    joint: Promise[list[Any]] = Promise()
    settle_when_all_are(joint, list(promises))
    return joint


def _disarm(abandonment: Callable[[], object] | None) -> None:
    if isinstance(abandonment, Abandonment):
        abandonment.disarm()


def _typed(error: BaseException) -> BaseException:
    """Errors of pykka never leak."""
    if isinstance(error, pykka.ActorDeadError):
        return BrokerClosedError("the actor is stopped: the broker, its topic or group is gone")
    return error
