"""`Dispatcher`: runs all actors of a broker on one thread (or a few).

Our actors never wait, so they do not need a thread each. One thread takes the actors that have
messages, in turn, and runs each for a while. That makes a call through three actors cost two thread
switches, there and back, and a topic of a thousand partitions no thread at all.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING

from dmq_actors import events
from dmq_actors._runtime.log import log
from dmq_actors._runtime.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable


class Dispatcher(Scheduler):
    """A run queue and the threads that serve it. Thread-safe.

    Args:
        threads: how many. More than one pays only where Python runs without its global lock.
    """

    def __init__(self, threads: int = 1) -> None:
        super().__init__()
        self._due: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.schedule = self._due.put
        self._threads = [
            threading.Thread(target=self._work, name=f"dmq-dispatcher-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads, after what is scheduled now."""
        for _ in self._threads:
            self._due.put(None)

    def join(self, deadline: float) -> list[str]:
        """Wait until this monotonic time; the names of threads that still run."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0.0))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _work(self) -> None:
        while True:
            run = None  # hold nothing while idle
            try:
                run = self._due.get()
                if run is None:
                    return
                run()
            except BaseException as error:  # noqa: BLE001  # thrown into this thread from outside
                self.failures.note("dispatcher", run, error)
                log.error(
                    events.ACTOR_FAILED, actor="dispatcher", message=repr(run), exc_info=error
                )
                if run is not None:
                    self._due.put(run)  # its actor counts on being run; once more is harmless
