"""`HandlerFailures`: what handlers raised, until somebody looks at it."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from dmq_actors._runtime.promise import Promise

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors.info import HandlerFailure

KEPT = 1000
"""How many are kept at most; a program that never looks does not grow."""


class HandlerFailures:
    """The failures of all worker pools of one broker, the latest ones. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[HandlerFailure] = deque(maxlen=KEPT)
        self._next: Promise[None] = Promise()

    def record(self, failure: HandlerFailure) -> None:
        """A handler has failed."""
        with self._lock:
            self._kept.append(failure)
            waiting, self._next = self._next, Promise()
        waiting.resolve()

    def take(self, wanted: Callable[[HandlerFailure], bool]) -> list[HandlerFailure]:
        """Remove and return those that are wanted, in order."""
        with self._lock:
            taken = [failure for failure in self._kept if wanted(failure)]
            for failure in taken:
                self._kept.remove(failure)
        return taken

    def next(self) -> Promise[None]:
        """A promise that is kept when the next handler fails."""
        with self._lock:
            return self._next
