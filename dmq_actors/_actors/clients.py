"""`Clients`: what works with a broker and must come to its end before the broker does.

Worker pools first, because their handlers may publish; then producers, which hand over what they
hold. Only while they last may the broker still take calls.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Client(Protocol):
    """A worker pool or a producer, as its broker sees it."""

    ending_rank: int
    """Those of a lower rank end first; those of the same rank at the same time."""

    def begin_end(self) -> None:
        """Take no more work. Must not wait, nor raise."""
        ...

    def finish_end(self, deadline: float) -> list[str]:
        """Wait until this monotonic time for what is under way; answers what still runs."""
        ...


class Clients:
    """The living clients of one broker. Thread-safe; it keeps those alive that are to be held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: weakref.WeakSet[Client] = weakref.WeakSet()
        self._held: set[Client] = set()
        self._ended = False

    def add(
        self, client: Client, refuse: Callable[[], BaseException], *, hold: bool = False
    ) -> None:
        """Note a new client; raises what `refuse` answers once the end has begun.

        One to `hold` lives until it is discarded: an event loop does not keep its tasks alive.
        """
        with self._lock:
            if self._ended:
                raise refuse()
            self._known.add(client)
            if hold:
                self._held.add(client)

    def discard(self, client: Client) -> None:
        """A client has ended by itself."""
        with self._lock:
            self._known.discard(client)
            self._held.discard(client)

    def end(self, deadline: float) -> list[str]:
        """End all, rank by rank, until this monotonic time; answers what still runs."""
        with self._lock:
            self._ended = True
            clients = list(self._known)
        still_running: list[str] = []
        for rank in sorted({client.ending_rank for client in clients}):
            ending = [client for client in clients if client.ending_rank == rank]
            for client in ending:
                client.begin_end()
            for client in ending:
                still_running += client.finish_end(deadline)
        return still_running
