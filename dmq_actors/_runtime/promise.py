"""`Promise`: the answer of an actor, now or later.

It is the `pykka.Future` of our actors, and leaner: one lock, and a callback list that is only
looked at when somebody waits. A reader's thread finishes the answer (copies values, puts a batch
in order), so that no code of a user runs in an actor.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pykka

from dmq_actors import events
from dmq_actors._runtime.abandonment import Abandonment
from dmq_actors._runtime.forks import fork_count, forked_error
from dmq_actors._runtime.gate import Gates
from dmq_actors._runtime.joint import settle_when_all_are
from dmq_actors._runtime.log import log
from dmq_actors.errors import BlockingInActorError, BrokerClosedError, BrokerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

T = TypeVar("T")
R = TypeVar("R")
_Outcome = tuple[Any, BaseException | None]


actor_thread = threading.local()
"""``actor_thread.current`` is the actor whose thread this is; unset everywhere else."""


class Promise(pykka.Future[T]):
    """An answer that will come: wait with `get`, or ``await`` it, or add a callback.

    Thread safety: every method may be called from any thread.
    """

    _get_hook: Any = None
    gates: Gates = Gates()

    def __init__(self) -> None:
        # Not calling super: pykka's attributes have class-level defaults here, and a publish that
        # nobody waits for should cost as little as possible.
        self._lock = threading.Lock()
        self._outcome: _Outcome | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._finish: Callable[[Any], T] | None = None
        self._abandonment: Callable[[], object] | None = None
        self._abandoned = False
        self._forks = fork_count()

    def __repr__(self) -> str:
        state = "pending" if self._outcome is None else "failed" if self._outcome[1] else "done"
        return f"<Promise {state}>"

    @classmethod
    def resolved(cls, value: Any, finish: Callable[[Any], T] | None = None) -> Promise[T]:
        """A promise that is kept already."""
        promise = cls()
        promise.resolve(value, finish)
        return promise

    # For the reader

    def done(self) -> bool:
        """Whether the answer is there."""
        with self._lock:
            return self._outcome is not None

    def get(self, *, timeout: float | None = None) -> T:
        """Wait for the answer.

        Args:
            timeout: seconds; None waits as long as it takes. The answer can be fetched again
                later: a time-out takes nothing back.

        Raises:
            BrokerTimeoutError: no answer in time. The call may still take effect.
            BlockingInActorError: called on an actor's thread before the answer was there.
            DMQError: what the actor answered; for a stopped actor why it is gone.
        """
        if self._get_hook is not None:  # one that pykka made, of others
            self.resolve(self._get_hook(timeout))
            self._get_hook = None
        self._wait(timeout)
        return self._read()

    def add_done_callback(self, callback: Callable[[Promise[T]], object]) -> None:
        """Call ``callback(promise)`` when the answer is there; at once if it is.

        The callback runs in the thread that answers, mostly an actor's: keep it short, never wait
        in it. What it raises is logged and goes no further.
        """
        if not self._subscribe(partial(callback, self)):
            self._run(partial(callback, self))

    def __await__(self) -> Generator[Any, None, T]:
        gate = self.gates.for_loop(asyncio.get_running_loop())
        if self._subscribe(gate.open):
            try:
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
        self.add_done_callback(lambda done: mapped._read_later(done, func))
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
        with self._lock:
            self._abandoned = True
            abandonment, self._abandonment = self._abandonment, None
        if abandonment is not None:
            abandonment()
            _disarm(abandonment)

    # For the one who answers

    def resolve(self, value: Any = None, finish: Callable[[Any], T] | None = None) -> bool:
        """Answer; False if it was answered before.

        `finish` turns the value into the answer, in the reader's thread.
        """
        return self._settle((value, None), finish)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error; False if it was answered before."""
        return self._settle((None, _typed(error)), None)

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
        self.add_done_callback(reply._adopt)

    def when_abandoned(self, abandonment: Callable[[], object]) -> None:
        """What to do when the reader goes away without having read; at once if it has."""
        with self._lock:
            if not self._abandoned:
                self._abandonment = abandonment
                return
        abandonment()
        _disarm(abandonment)

    def peek(self) -> Any:
        """The unfinished answer of a promise that is done; raises its error."""
        with self._lock:
            outcome = self._outcome
        if outcome is None:
            raise BlockingInActorError("peek() at a promise that is not done")
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]

    def _adopt(self, other: Promise[Any]) -> None:
        with other._lock:
            outcome, finish = cast("_Outcome", other._outcome), other._finish
        self._settle(outcome, finish)

    def _read_later(self, other: Promise[Any], func: Callable[[Any], Any]) -> None:
        with other._lock:
            _, error = cast("_Outcome", other._outcome)
        if error is not None:
            self.fail(error)
        else:
            self.resolve(other, lambda read: func(read.get(timeout=0)))

    def _settle(self, outcome: _Outcome, finish: Callable[[Any], T] | None) -> bool:
        with self._lock:
            if self._outcome is not None:
                return False
            self._outcome = outcome
            if outcome[1] is None:
                self._finish = finish
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._run(callback)
        return True

    def _read(self) -> T:
        with self._lock:
            value, error = cast("_Outcome", self._outcome)
            if error is None and self._finish is not None:
                value = self._finish(value)  # if it raises, nothing was read
                self._outcome, self._finish = (value, None), None
            _disarm(self._abandonment)
            self._abandonment = None
        if error is None:
            return cast("T", value)
        try:
            raise error
        finally:
            del self, error  # else the traceback keeps this promise and its answer alive

    def _wait(self, timeout: float | None) -> None:
        gate = self.gates.for_thread()
        if not self._subscribe(gate.open):
            return
        try:
            if self._forks != fork_count():
                raise forked_error()
            if getattr(actor_thread, "current", None) is not None:
                raise BlockingInActorError(
                    f"waiting on the thread of {actor_thread.current} could be for ever; "
                    "use add_done_callback, or wait in a thread of your own"
                )
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
        with self._lock:
            if self._outcome is not None:
                return False
            self._callbacks.append(callback)
            return True

    def _unsubscribe(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    @staticmethod
    def _run(callback: Callable[[], object]) -> None:
        try:
            callback()
        except BaseException:  # noqa: BLE001  # an actor must not die of a user's callback
            log.error(events.CALLBACK_FAILED, callback=repr(callback), exc_info=True)


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
