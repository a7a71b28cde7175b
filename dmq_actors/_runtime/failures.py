"""`ActorFailures`: what went wrong in the actors of a broker, and no caller was told."""

from __future__ import annotations

import traceback
from collections import deque
from typing import Any

from dmq_actors.info import ActorFailure

_KEPT = 100


class ActorFailures:
    """The last hundred failures, as texts: an exception keeps its frames alive.

    Thread-safe without a lock: a signal handler may come in the middle, and look.
    """

    def __init__(self) -> None:
        self._noted: deque[ActorFailure] = deque(maxlen=_KEPT)

    def note(self, actor: str, message: Any, error: BaseException) -> None:
        """An actor was hit by this while it handled this message."""
        told = "".join(safe_text(lambda: traceback.format_exception(error)))
        self._noted.append(
            ActorFailure(actor, safe_repr(message)[:200], safe_repr(error)[:1000], told)
        )

    def seen(self) -> tuple[ActorFailure, ...]:
        """Those that nobody has taken."""
        while True:
            try:
                return tuple(self._noted)
            except RuntimeError:  # one was added meanwhile
                continue

    def take(self) -> list[ActorFailure]:
        """Those that nobody has taken; the next call answers later ones only."""
        taken: list[ActorFailure] = []
        try:
            while True:
                taken.append(self._noted.popleft())
        except IndexError:
            return taken


def safe_repr(value: Any) -> str:
    """The repr of an object, whose code may be a user's and may fail."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  # a name is better than a second failure
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def safe_text(make: Any) -> Any:
    """What `make` answers, or a text that says why there is none."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  # as above
        return f"<no text: {type(error).__name__}>"
