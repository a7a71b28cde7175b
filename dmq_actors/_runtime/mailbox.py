"""`Mailbox`: the inbox of an actor, which also knows whether the actor is due to run.

One lock makes two things one: a message is put and the actor marked as scheduled, and neither
happens once the mailbox is closed. So no message can slip in behind an actor's end, and a busy
actor stands in the run queue once, however many messages it has.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._runtime.promise import Promise

Envelope = tuple[Any, "Promise[Any] | None"]
"""A message, and the promise of its answer if one is wanted."""


class Mailbox:
    """First in, first out. Any thread may put; only the thread that runs the actor takes."""

    __slots__ = ("_closed", "_envelopes", "_lock", "_scheduled", "schedule")

    def __init__(self) -> None:
        self._envelopes: deque[Envelope] = deque()
        self._lock = threading.Lock()
        self._scheduled = False
        self._closed = False
        self.schedule: Callable[[], None] = _nobody

    def put(self, envelope: Envelope) -> bool:
        """Add a message and see to it that the actor runs; False if the mailbox is closed."""
        try:
            with self._lock:
                if self._closed:
                    return False
                self._envelopes.append(envelope)
                if self._scheduled:
                    return True
                self._scheduled = True
            self.schedule()
        except BaseException:
            # A Ctrl-C may hit the caller between the mark and the deed: then nobody would ever
            # schedule this actor again. Once too often is harmless, see BrokerActor._run.
            self.schedule()
            raise
        return True

    def open(self, schedule: Callable[[], None]) -> None:
        """The actor has started; what was put before (it is in pykka's registry) is due now."""
        with self._lock:
            self.schedule = schedule
            due = self._scheduled
        if due:
            schedule()

    def take(self) -> Envelope | None:
        """The next message; None, and no longer scheduled, when there is none."""
        with self._lock:
            if self._envelopes:
                return self._envelopes.popleft()
            self._scheduled = False
            return None

    def close(self) -> list[Envelope]:
        """Take no more messages; returns those that were not handled."""
        with self._lock:
            self._closed = True
            self.schedule = _nobody  # or whoever holds the mailbox would hold the actor
            left = list(self._envelopes)
            self._envelopes.clear()
            return left

    # The rest of pykka's protocol for inboxes, which only pykka's own loop uses

    def get(self) -> Envelope:
        """The next message; ``IndexError`` when there is none."""
        with self._lock:
            return self._envelopes.popleft()

    def empty(self) -> bool:
        """Whether no message waits."""
        with self._lock:
            return not self._envelopes


def _nobody() -> None:
    """Before its start and after its end nobody runs an actor."""
