"""`Dispatcher`: runs what no caller runs: actors that were told and not asked, long polls, timers.

Our actors never wait, so they do not need a thread each. One thread takes the actors that have
messages, in turn, and runs each for a while; a topic of a thousand partitions costs no thread.
"""

from __future__ import annotations

import queue
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dmq_actors import events
from dmq_actors._runtime.clock import SystemClock
from dmq_actors._runtime.here import here
from dmq_actors._runtime.log import log
from dmq_actors._runtime.scheduler import Scheduler
from dmq_actors._runtime.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._runtime.clock import Clock


class Dispatcher(Scheduler):
    """A run queue and the threads that serve it. Thread-safe.

    Args:
        threads: how many. More than one pays only where Python runs without its global lock.
    """

    def __init__(self, threads: int = 1) -> None:
        super().__init__()
        self._due: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.schedule = self._due.put
        self._stopping = False
        self._ensure_clock: Callable[[], object] = int
        self._services = [
            Service(f"dmq-dispatcher-{number}", self._serve, self._hit) for number in range(threads)
        ]
        for service in self._services:
            service.start()

    def stop(self) -> None:
        """End the threads, after what is scheduled now."""
        self._stopping = True
        for _ in self._services:
            self._due.put(None)

    def join(self, deadline: float) -> list[str]:
        """Wait until this monotonic time; the names of threads that still run."""
        return [name for service in self._services for name in service.join(deadline)]

    def ensure(self) -> None:
        """See `Scheduler.ensure`."""
        self._ensure_clock()
        for service in self._services:
            service.ensure()

    def bind(self, clock: Clock) -> None:
        """See `Scheduler.bind`."""
        if isinstance(clock, SystemClock):  # the one with a thread
            self._ensure_clock = clock.ensure

    def _serve(self) -> None:
        here.serves = True
        if self._stopping:
            self._due.put(None)  # the one for this thread may have been lost when it was hit
        run: Callable[[], object] | None = None
        try:
            # An iterator in C: what it takes out cannot be lost between there and the variable.
            for run in iter(self._due.get, _NEVER):
                if run is None:
                    return
                run()
                run = None  # noqa: PLW2901  # hold nothing while idle
        except BaseException:
            if run is not None:
                self._due.put(run)  # its actor counts on being run; once more is harmless
            raise

    def _hit(self, error: BaseException) -> None:
        self.failures.note("dispatcher", "between two actors", error)
        with suppress(Exception):
            log.error(
                events.ACTOR_FAILED,
                actor="dispatcher",
                message="between two actors",
                exc_info=error,
            )


_NEVER: Any = object()
