"""`Clients`: what works with a broker and must come to its end before the broker does.

Worker pools first, because their handlers may publish; then producers, which hand over what they
hold. Only while they last may the broker still take calls.
"""

from __future__ import annotations

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
        # No lock: a signal handler or a finalizer may come in the middle, and make or end a client.
        self._known: dict[int, weakref.ref[Client]] = {}
        self._held: dict[int, Client] = {}
        self._ended = False

    def add(
        self, client: Client, refuse: Callable[[], BaseException], *, hold: bool = False
    ) -> None:
        """Note a new client; raises what `refuse` answers once the end has begun.

        One to `hold` lives until it is discarded: an event loop does not keep its tasks alive.
        """
        number = id(client)
        self._known[number] = weakref.ref(client, lambda _: self._known.pop(number, None))
        if hold:
            self._held[number] = client
        if self._ended:  # looked at last: `end` sets it before it looks at who there is
            self.discard(client)
            raise refuse()

    def discard(self, client: Client) -> None:
        """A client has ended by itself."""
        self._known.pop(id(client), None)
        self._held.pop(id(client), None)

    def end(self, deadline: float) -> list[str]:
        """End all, rank by rank, until this monotonic time; answers what still runs."""
        self._ended = True
        known = [known() for known in list(self._known.values())]
        clients = [client for client in known if client is not None]
        still_running: list[str] = []
        for rank in sorted({client.ending_rank for client in clients}):
            ending = [client for client in clients if client.ending_rank == rank]
            for client in ending:
                client.begin_end()
            for client in ending:
                still_running += client.finish_end(deadline)
        return still_running
