"""`SendFuture`: what becomes of one message that a producer sends.

A `concurrent.futures.Future`, so that everything made for those takes it. A condition of its own
would cost more than all the rest of a send, and few futures are ever waited for: most are settled
when somebody looks. So a future gets its condition when somebody asks for it before that.

Sharing one condition among futures would be cheaper still, and wrong: `concurrent.futures.wait`
locks futures in the order of their ids, so two threads would lock two shared conditions in opposite
order. See decision 011.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from dmq_actors._core.values import copy_out
from dmq_actors._runtime.forks import forked_error
from dmq_actors._runtime.gate import LoopGate, ThreadGate
from dmq_actors._runtime.here import check_may_wait, here
from dmq_actors._runtime.promise import _guarded
from dmq_actors.errors import BrokerTimeoutError
from dmq_actors.messages import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from dmq_actors._clients.unread import UnreadFailures

RUNNING, FINISHED = "RUNNING", "FINISHED"
"""As in `concurrent.futures`; a send cannot be cancelled, so a future begins as running."""

_MADE_WHEN_WATCHED = frozenset({"_condition", "_waiters", "_done_callbacks"})


class Origin(Protocol):
    """The outbox of a future, as the future needs it."""

    lock: threading.RLock

    def is_forked(self) -> bool:
        """Whether the one who would settle it is in another process."""
        ...

    def hand_over(self) -> None:
        """End the linger."""
        ...


class SendFuture(Future[StoredMessage]):
    """The outcome of one send: `result` or ``await`` gives the `StoredMessage`, or raises.

    A `concurrent.futures.Future` in every respect: `concurrent.futures.wait`, ``as_completed``,
    `asyncio.wrap_future` take it. `Producer.send` makes it; `cancel` answers False, since a message
    cannot be called back. Waiting with `result`, `exception` or ``await`` hands over what lingers,
    so that a thread that waits for each message does not pay the linger.

    A failure that nobody has read when the future is collected is logged as
    ``producer.send_failed``.

    Thread safety: every method may be called from any thread; it may be awaited in any number of
    event loops.

    Example:
        >>> with MessageQueue() as mq:
        ...     _ = mq.create_topic("t")
        ...     with mq.producer("t") as producer:
        ...         future = producer.send(Message("hello"))
        ...         future.result(timeout=5).offset
        0
    """

    _state = RUNNING
    _result: StoredMessage | None = None
    _exception: BaseException | None = None
    _copied = False
    _unread: UnreadFailures | None = None
    is_watched = False
    """Whether somebody has asked for its condition; guarded by the lock of the outbox."""

    def __init__(self, outbox: Origin) -> None:
        # Not calling super: what it makes is made when somebody watches, see __getattr__.
        self._outbox = outbox

    def __getattr__(self, name: str) -> Any:
        if name not in _MADE_WHEN_WATCHED:
            raise AttributeError(f"a SendFuture has no {name!r}", name=name, obj=self)
        made = {"_condition": threading.Condition(), "_waiters": [], "_done_callbacks": []}
        with self._outbox.lock:  # or it could be settled meanwhile as one that nobody watches
            if not self.is_watched:
                self.is_watched = True  # before any other thread can find the condition
                self.__dict__.update(made)
        return self.__dict__[name]

    # For the reader

    def done(self) -> bool:
        """Whether the message is stored, or has failed."""
        return self._state == FINISHED

    def result(self, timeout: float | None = None) -> StoredMessage:
        """The stored message; waits for it.

        Args:
            timeout: seconds; None waits as long as it takes.

        Raises:
            BrokerTimeoutError: (a `TimeoutError`) no outcome in time; it can be asked for again.
            UnknownTopicError: the topic was deleted meanwhile.
            MessageTooLargeError: the message alone exceeds the topic's ``retention_bytes``.
            BrokerClosedError: the broker closed before the message was stored.
            BlockingInActorError: called in a done-callback before the outcome was there.
        """
        self._wait(timeout)
        if self._exception is not None:
            self._was_read()
            try:
                raise self._exception
            finally:
                del self  # else the traceback keeps this future alive
        return self._read()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why the message failed, or None if it is stored; waits as `result` does."""
        self._wait(timeout)
        self._was_read()
        return self._exception

    def add_done_callback(self, fn: Callable[[Future[StoredMessage]], object]) -> None:
        """Call ``fn(future)`` when the outcome is there; at once if it is.

        It runs in the thread that settles the future, mostly the broker's own: keep it short, and
        never wait in it. What it raises is logged and goes no further. It does not end the linger.
        """
        super().add_done_callback(fn)

    def __await__(self) -> Generator[Any, None, StoredMessage]:
        yield from self.settled().__await__()
        return self.result()

    async def settled(self) -> None:
        """Wait in an event loop until the outcome is there, without reading it."""
        if self.done():
            return
        gate = LoopGate(asyncio.get_running_loop())
        self._watch(gate.open)
        await gate.opened

    def settled_within(self, timeout: float | None) -> bool:
        """Wait in a thread until the outcome is there, without reading it; whether it is."""
        if self.done():
            return True
        gate = ThreadGate()
        forget = self._watch(gate.open)
        if here.current is not None or here.serves:
            timeout = 0.0
        try:
            return gate.wait(timeout)
        finally:
            forget()

    def _wait(self, timeout: float | None) -> None:
        if self.done() or self.settled_within(timeout):
            return
        check_may_wait()
        raise BrokerTimeoutError(
            f"no outcome within {timeout} s; the message may still be stored: ask again"
        )

    def _watch(self, opening: Callable[[], object]) -> Callable[[], None]:
        """Call this when settled; answers how to call that off."""
        if self._outbox.is_forked():
            raise forked_error()

        def settled(_future: object) -> None:
            opening()

        def forget() -> None:
            with self._condition:
                if settled in self._done_callbacks:
                    self._done_callbacks.remove(settled)

        super().add_done_callback(settled)
        self._outbox.hand_over()
        return forget

    def _read(self) -> StoredMessage:
        # In the reader's thread, since copying a value may run code of the user's own. Two threads
        # that do it at the same time each get a copy nobody else has.
        if self._copied:
            self._result = copy_out([cast("StoredMessage", self._result)])[0]
            self._copied = False
        return cast("StoredMessage", self._result)

    def _was_read(self) -> None:
        unread: UnreadFailures | None = self.__dict__.pop("_unread", None)
        if unread is not None:
            unread.one_was_read()

    def _get_snapshot(self) -> tuple[bool, bool, Any, BaseException | None]:
        """How asyncio reads a future from Python 3.14 on."""
        if not self.done():
            return False, False, None, None
        self._was_read()
        if self._exception is not None:
            return True, False, None, self._exception
        return True, False, self._read(), None

    def _invoke_callbacks(self) -> None:
        # Not as the base class does: a SystemExit in one must not keep the others from running, and
        # a reader that wakes up takes its own out of the list meanwhile.
        with self._condition:
            callbacks = list(self._done_callbacks)
        for callback in callbacks:
            _guarded(partial(callback, self))
