"""What the calling thread is doing for the broker at this moment."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from dmq_actors.errors import BlockingInActorError


class Due(Protocol):
    """An actor that has messages, as whoever runs it sees it."""

    def run(self, until: Any = None, /) -> None:
        """Handle what waits in its mailbox, at most until this promise is kept."""
        ...

    def leave_to_dispatcher(self) -> None:
        """Let the dispatcher run it."""
        ...


class _Here(threading.local):
    """One for each thread; the defaults hold where nothing was set."""

    current: object = None
    """The actor that this thread runs right now; its text is its name."""

    due: list[Due] | None = None
    """While this thread helps itself: the actors that it has made due. See `helping`."""

    serves: bool = False
    """Whether this is a thread of a dispatcher: on it, nobody may wait."""


here = _Here()


def owns(lock: Any) -> bool:
    """Whether the calling thread holds this `threading.RLock`.

    So a ``finally`` can tell whether it was taken, also where an exception came right after that.
    """
    return lock._is_owned()  # type: ignore[no-any-return]  # noqa: SLF001  # `Condition` asks it, too


def check_may_wait() -> None:
    """Refuse a wait that could be for ever.

    Raises:
        BlockingInActorError: this thread is inside an actor, or serves all of them.
    """
    if here.current is not None:
        raise BlockingInActorError(
            f"this thread is in the middle of {here.current}, so waiting could be for ever (a "
            "signal handler, a finalizer or a log handler has interrupted it, or a done-callback "
            "waits); use a call that needs no answer, add_done_callback, or a thread of your own"
        )
    if here.serves:
        raise BlockingInActorError(
            "this thread serves the actors of a broker, so nobody may wait on it: in a "
            "done-callback use add_done_callback again, or hand the work to a thread of your own"
        )
