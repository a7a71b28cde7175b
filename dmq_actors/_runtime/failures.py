"""`ActorFailures`: what went wrong in the actors of a broker, and no caller was told."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from typing import Any

from dmq_actors.info import ActorFailure

_KEPT = 100


class ActorFailures:
    """The last hundred failures, as texts: an exception keeps its frames alive. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: deque[ActorFailure] = deque(maxlen=_KEPT)

    def note(self, actor: str, message: Any, error: BaseException) -> None:
        """An actor was hit by this while it handled this message."""
        failure = ActorFailure(
            actor, repr(message)[:200], repr(error), "".join(traceback.format_exception(error))
        )
        with self._lock:
            self._noted.append(failure)

    def seen(self) -> tuple[ActorFailure, ...]:
        """Those that nobody has taken."""
        with self._lock:
            return tuple(self._noted)

    def take(self) -> list[ActorFailure]:
        """Those that nobody has taken; the next call answers later ones only."""
        with self._lock:
            taken = list(self._noted)
            self._noted.clear()
            return taken
