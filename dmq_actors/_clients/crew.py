"""`Crew`: runs the workers of a pool: as threads, as tasks of a loop of their own, or of yours."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from dmq_actors._clients.steps import run, run_async
from dmq_actors._runtime.promise import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dmq_actors._clients.worker import Worker


class Crew:
    """The workers of one pool at work. Thread-safe.

    Args:
        name: of the threads or tasks, with a number behind.
        workers: they have joined already.
        is_async: whether they need an event loop: the running one, or one of their own.
        ended: called once all are done.
    """

    def __init__(
        self, name: str, workers: Sequence[Worker], *, is_async: bool, ended: Callable[[], None]
    ) -> None:
        self._name = name
        self._workers = workers
        self._ended = ended
        self._lock = threading.Lock()
        self._working = len(workers)
        self._threads: list[threading.Thread] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_async = is_async
        self.ended: Promise[None] = Promise()

    def start(self) -> None:
        """Let them work."""
        loop = asyncio._get_running_loop()  # noqa: SLF001  # documented, and does not raise
        if self._is_async and loop is not None:
            self._loop = loop
            self._start_tasks()
        elif self._is_async:
            self._start_thread(self._name, lambda: asyncio.run(self._work_in_loop()))
        else:
            for number, worker in enumerate(self._workers):
                self._start_thread(f"{self._name}-{number}", partial(self._work, worker))

    def stop(self) -> None:
        """Let all finish what is in hand."""
        for worker in self._workers:
            worker.stop()

    def wait(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds for all to be done; at once where that can never be."""
        if self.is_inside():
            return self.ended.done()
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._wait(timeout):
            return False
        for thread in self._threads:
            thread.join(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        return True

    async def wait_in_loop(self, seconds: float) -> bool:
        """As `wait`, in an event loop, also in that of the workers."""
        try:
            async with asyncio.timeout(seconds):
                await self.ended
        except TimeoutError:
            return False
        return self._loop is asyncio.get_running_loop() or await asyncio.to_thread(
            self.wait, seconds
        )

    def _wait(self, timeout: float | None) -> bool:
        try:
            self.ended.get(timeout=timeout)
        except TimeoutError:
            return False
        return True

    def is_inside(self) -> bool:
        """Whether whoever asks is a worker, or in the loop that runs them."""
        loop = asyncio._get_running_loop()  # noqa: SLF001  # documented, and does not raise
        in_loop = self._loop is not None and loop is self._loop
        return in_loop or threading.current_thread() in self._threads

    def still_working(self) -> list[str]:
        """The names of the threads and tasks that are not done."""
        threads = [thread.name for thread in self._threads if thread.is_alive()]
        return threads + [task.get_name() for task in self._tasks if not task.done()]

    def _start_thread(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _start_tasks(self) -> None:
        for number, worker in enumerate(self._workers):
            task = asyncio.get_running_loop().create_task(
                self._work_as_task(worker), name=f"{self._name}-{number}"
            )
            self._tasks.add(task)

    async def _work_in_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start_tasks()
        await asyncio.wait(self._tasks)

    async def _work_as_task(self, worker: Worker) -> None:
        try:
            await run_async(worker.work())
        finally:
            self._done()

    def _work(self, worker: Worker) -> None:
        try:
            run(worker.work())
        finally:
            self._done()

    def _done(self) -> None:
        with self._lock:
            self._working -= 1
            last = self._working == 0
        if last:
            self._ended()
            self.ended.resolve()
