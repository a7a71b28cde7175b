"""`Runner`: lets one thread at a time run an actor, whichever thread that is.

It never waits: a thread that finds another one running the actor goes away, and the other looks
into the mailbox again when it is done. An actor stands in the run queue once, however many messages
it has. Any step may be hit by an exception thrown in from outside; then the right to run is given
back all the same, and no message is lost.

Such exceptions, signal handlers and finalizers come in after a call, at the start of a function in
Python, or when a loop goes round; never between two other steps. The order below counts on that.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dmq_actors._runtime.here import here, owns

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._runtime.mailbox import Envelope, Mailbox
    from dmq_actors._runtime.promise import Promise
    from dmq_actors._runtime.scheduler import Scheduler


class Runner:
    """Runs one actor.

    Args:
        actor: its text is its name.
        mailbox: of the actor.
        scheduler: where it is due when no caller runs it.
        handle: handles one message; answers what was thrown into the thread meanwhile.
        hit: told what was thrown in between two messages.
    """

    __slots__ = (
        "_actor",
        "_handle",
        "_hit",
        "_mailbox",
        "_marked",
        "_running",
        "_scheduler",
        "_turn",
    )

    def __init__(
        self,
        actor: object,
        mailbox: Mailbox,
        scheduler: Scheduler,
        handle: Callable[[Any, Promise[Any] | None], BaseException | None],
        hit: Callable[[BaseException], None],
    ) -> None:
        self._actor = actor
        self._mailbox = mailbox
        self._scheduler = scheduler
        self._turn = scheduler.turn
        self._handle = handle
        self._hit = hit
        # Never waited for. A reentrant one, because that can tell who holds it; see `owns`.
        self._running = threading.RLock()
        self._marked = False
        """Whether it stands in the run queue of the dispatcher."""

    def schedule(self) -> None:
        """The actor has messages: this thread will run it if it helps itself, else the dispatcher.

        Once too often is harmless.
        """
        due = here.due
        if due is None:
            self.leave_to_dispatcher()
        elif not owns(self._running):
            due.append(self)  # even if another thread is about to run it: that may take its time

    def leave_to_dispatcher(self) -> None:
        """Not by this thread, which has its answer or is none of those that ask."""
        if not self._marked and not owns(self._running):
            self._marked = True  # and no call but one in C before it stands in the queue
            self._scheduler.schedule(self._serve)

    def _serve(self) -> None:
        self._marked = False
        self.run()

    def run(self, until: Promise[Any] | None = None) -> None:
        """Handle what waits: a turn at most, or less when the promise `until` is kept."""
        running = self._running
        if owns(running):
            return  # a finalizer has interrupted this very run, which goes on afterwards
        try:
            if running.acquire(blocking=False):
                here.current = self._actor
                self._take_turn(until)
        finally:
            try:
                self._end_turn()
            finally:
                self._end_turn()  # should the first have been hit

    def _end_turn(self) -> None:
        if owns(self._running):
            here.current = None
            self._running.release()
            if self._mailbox:  # looked at last: whoever put something meanwhile relies on it
                self.schedule()

    def _take_turn(self, until: Promise[Any] | None) -> None:
        left = self._turn
        envelope: Envelope | None = None
        thrown: BaseException | None = None
        try:
            for envelope in self._mailbox:
                message, reply = envelope
                envelope = None  # noqa: PLW2901  # it is begun with
                thrown = self._handle(message, reply)
                del message, reply  # hold nothing while idle
                left -= 1
                if left == 0 or thrown is not None or (until is not None and until.done()):
                    break
        except IndexError:  # the mailbox is empty
            pass
        except BaseException as error:  # noqa: BLE001  # between two messages; raised below
            if envelope is not None:
                self._mailbox.put_back(envelope)
            self._hit(error)
            thrown = error
        if thrown is not None and here.due is not None:  # meant for the caller whose thread this is
            raise thrown
