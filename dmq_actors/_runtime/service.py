"""`Service`: a daemon thread that serves until it is told to stop, and comes back whatever hits it.

An exception may be thrown into any thread from outside, between any two instructions; then the
work begins again, in this thread if possible, else in a new one. So `serve` must keep what is still
to be done where it can be found again, and return when (and whenever again) it is asked to stop.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from dmq_actors._runtime.forks import fork_count
from dmq_actors._runtime.here import owns

if TYPE_CHECKING:
    from collections.abc import Callable


class Service:
    """One thread, and its successors.

    Args:
        name: of the thread.
        serve: the work; returns to end the service.
        hit: told what was thrown into the thread; may fail.
    """

    def __init__(
        self, name: str, serve: Callable[[], None], hit: Callable[[BaseException], object]
    ) -> None:
        self._name = name
        self._serve = serve
        self._hit = hit
        self._forks = fork_count()
        self._threads: list[threading.Thread] = []
        self._serving = threading.RLock()  # held by the thread that serves
        self._over = False

    def start(self) -> None:
        """Start the thread, if none serves. Harmless when called too often, by anybody.

        Raises:
            RuntimeError: there can be no more threads now; call it again later.
        """
        if self._over or self._forks != fork_count():
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def ensure(self) -> None:
        """Start the thread if none serves: the last start failed, or it was hit while it began."""
        if not self._over and not any(thread.is_alive() for thread in self._threads[-1:]):
            with suppress(RuntimeError):  # no thread to be had: the next call tries again
                self.start()

    @property
    def started(self) -> bool:
        """Whether there was ever a thread of it."""
        return bool(self._threads)

    def join(self, deadline: float) -> list[str]:
        """Wait until this monotonic time for its end; the names of threads that still run."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0.0))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _run(self) -> None:
        try:
            if self._serving.acquire(blocking=False):
                self._serve_on()
        finally:
            try:
                self._let_go()
            finally:
                self._let_go()

    def _serve_on(self) -> None:
        while not self._over:
            try:
                self._serve()
                self._over = True
            except BaseException as error:  # noqa: BLE001  # thrown in from outside; the work goes on
                with suppress(Exception):
                    self._hit(error)

    def _let_go(self) -> None:
        if owns(self._serving):
            self._serving.release()
            if not self._over:  # this thread ends, and should not
                with suppress(RuntimeError):  # no thread to be had: `ensure` tries again
                    self.start()
