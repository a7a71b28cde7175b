"""Gates: closed until opened once, from any thread; one for threads, one for event loops."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_SLICE = 5.0
"""Whoever waits looks up after so many seconds: a thread that serves may have been killed."""

_MAIN_SLICE = 0.5
"""The main thread does so more often: a Ctrl-C that comes just before a lock is waited for, or at
any time on Windows, does not end that wait."""


class ThreadGate:
    """Where a thread waits. A bare lock: a tenth of the cost of an `threading.Event`."""

    __slots__ = ("_ensure", "_lock", "open")

    def __init__(self, ensure: Callable[[], object] = int) -> None:
        self._ensure = ensure
        self._lock = threading.Lock()
        self._lock.acquire()
        self.open = self._lock.release
        """Call it once."""

    def wait(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds; whether it was opened. Ctrl-C ends the wait."""
        left = float("inf") if timeout is None else max(timeout, 0.0)
        in_main = threading.get_ident() == threading.main_thread().ident
        longest = _MAIN_SLICE if in_main else _SLICE
        while left > 0:
            if self._lock.acquire(timeout=min(left, longest)):
                return True
            left -= longest
            self._ensure()
        return self._lock.acquire(blocking=False)


class LoopGate:
    """Where a coroutine waits; opening it from another thread wakes the loop."""

    __slots__ = ("_loop", "opened")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.opened: asyncio.Future[None] = loop.create_future()

    def open(self) -> None:
        """Let the coroutine go on; harmless when it or its loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop was closed: nobody waits any more
            return

    def _set(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)


class Gates:
    """Makes the gates at which the readers of a promise wait; others wait in another way.

    Args:
        run_soon: lets a thread that serves the broker run something, for callbacks of users.
        ensure: called now and then by a thread that waits long, to bring back whoever serves.
    """

    __slots__ = ("ensure", "run_soon")

    def __init__(
        self,
        run_soon: Callable[[Callable[[], object]], object] | None = None,
        ensure: Callable[[], object] = int,
    ) -> None:
        self.run_soon = run_soon
        self.ensure = ensure

    def for_thread(self) -> ThreadGate:
        """A gate for the calling thread."""
        return ThreadGate(self.ensure)

    def for_loop(self, loop: asyncio.AbstractEventLoop) -> LoopGate:
        """A gate for a coroutine of this loop."""
        return LoopGate(loop)
