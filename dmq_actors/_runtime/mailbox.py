"""`Mailbox`: the inbox of an actor.

There is no lock in it, because a signal handler, a finalizer or a log handler may interrupt any put
and put something itself. Each step is one call of a function in C, and the order of the steps
makes it right: a message is put *before* its actor is scheduled, so whoever runs the actor
afterwards sees it; and the mailbox is looked at once more *after* the put, so that no message slips
in behind an actor's end: one of the two, the putter or the closer, takes it out again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dmq_actors._runtime.promise import Promise

Envelope = tuple[Any, "Promise[Any] | None"]
"""A message, and the promise of its answer if one is wanted."""


class Mailbox:
    """First in, first out. Any thread may put; only the thread that runs the actor takes."""

    __slots__ = ("_closed", "_envelopes", "schedule")

    def __init__(self) -> None:
        self._envelopes: deque[Envelope] = deque()
        self._closed = False
        self.schedule: Callable[[], None] = _nobody

    def __len__(self) -> int:
        return len(self._envelopes)

    def put(self, envelope: Envelope) -> list[Envelope] | None:
        """Add a message and see to it that the actor runs.

        Returns:
            What the caller must refuse because the mailbox was closed, this message mostly; None
            or nothing if all is well.
        """
        if self._closed:
            return [envelope]
        self._envelopes.append(envelope)
        try:
            self.schedule()
        except BaseException:
            self.schedule()  # a Ctrl-C in between: once more is harmless, not at all would not be
            raise
        return self.take_all() if self._closed else None

    def open(self, schedule: Callable[[], None]) -> None:
        """The actor has started; what was put before (it is in pykka's registry) is due now."""
        self.schedule = schedule
        if self._envelopes:
            schedule()

    def __iter__(self) -> Iterator[Envelope]:
        """Take the messages, one by one; ends with ``IndexError`` when there is none.

        An iterator in C: between taking a message and binding it to the variable of the loop, no
        exception can be thrown into the thread, and so none is lost.
        """
        return iter(self._envelopes.popleft, _NEVER)

    def put_back(self, envelope: Envelope) -> None:
        """A message that was taken, and not begun with, is next again."""
        self._envelopes.appendleft(envelope)

    def close(self) -> list[Envelope]:
        """Take no more messages; returns those that were not handled."""
        self._closed = True
        self.schedule = _nobody  # or whoever holds the mailbox would hold the actor
        return self.take_all()

    def take_all(self) -> list[Envelope]:
        """Take out what there is."""
        taken: list[Envelope] = []
        try:
            while True:
                taken.append(self._envelopes.popleft())
        except IndexError:
            return taken

    # The rest of pykka's protocol for inboxes, which only pykka's own loop uses

    def get(self) -> Envelope:
        """The next message; ``IndexError`` when there is none."""
        return self._envelopes.popleft()

    def empty(self) -> bool:
        """Whether no message waits."""
        return not self._envelopes


_NEVER: Any = object()


def _nobody() -> None:
    """Before its start and after its end nobody runs an actor."""
