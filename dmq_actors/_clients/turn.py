"""`Turn`: one at a time, and a clear error for the second instead of a silent mix-up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from dmq_actors.errors import ConcurrentUseError


class Turn:
    """A context manager that one thread, or one asyncio task, is in at a time.

    Whoever is in may enter again: a listener that is called by a poll may commit.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._owner: object = None
        self._name = ""
        self._depth = 0

    def __enter__(self) -> None:
        if not self.take():
            raise ConcurrentUseError(
                f"{self._what} is being used by {self._name}, and only one at a time may; "
                "make one consumer for each thread or task (wakeup, close, ack, nack and give_back "
                "are allowed from everywhere)"
            )

    def __exit__(self, *_: object) -> None:
        self.leave()

    def take(self) -> bool:
        """Enter; False if another is in."""
        me, name = _whoever_calls()
        with self._lock:
            if self._depth and self._owner != me:
                return False
            self._owner, self._name = me, name
            self._depth += 1
            return True

    def leave(self) -> None:
        """Leave."""
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._owner = None


def _whoever_calls() -> tuple[object, str]:
    task: asyncio.Task[Any] | None = None
    if asyncio._get_running_loop() is not None:  # noqa: SLF001  # documented, and does not raise
        task = asyncio.current_task()
    if task is not None:
        return task, f"task {task.get_name()}"
    thread = threading.current_thread()
    return thread.ident, f"thread {thread.name}"
