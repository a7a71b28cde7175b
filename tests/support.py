"""What tests of threads need: start together, end in time, report what went wrong."""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WATCHDOG = 10.0
"""Seconds after which something is called hung."""


class Crew:
    """Threads that are started, and joined with a bound; their errors are raised by `join`.

    ``with Crew() as crew: crew.start(f, x)`` joins at the end of the block.
    """

    def __init__(self, timeout: float = WATCHDOG) -> None:
        self._timeout = timeout
        self._threads: list[threading.Thread] = []
        self._errors: list[str] = []

    def start(self, work: Callable[..., Any], *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)
            except BaseException:  # reported by join
                self._errors.append(traceback.format_exc())

        thread = threading.Thread(target=run, name=f"crew-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self) -> None:
        for thread in self._threads:
            thread.join(self._timeout)
        hung = [thread.name for thread in self._threads if thread.is_alive()]
        assert not hung, f"hung: {hung}; errors so far: {self._errors}"
        assert not self._errors, "\n".join(self._errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if error is None:
            self.join()


def all_at_once(works: Sequence[Callable[[], Any]], timeout: float = WATCHDOG) -> list[Any]:
    """Run all in threads that start at the same moment; results or exceptions, in order."""
    results: list[Any] = [None] * len(works)
    barrier = threading.Barrier(len(works))

    def run(at: int, work: Callable[[], Any]) -> None:
        barrier.wait(timeout)
        try:
            results[at] = work()
        except Exception as error:  # a result like any other
            results[at] = error

    with Crew(timeout) as crew:
        for at, work in enumerate(works):
            crew.start(run, at, work)
    return results


class HeldActor:
    """Keeps an actor busy, so that nobody else can run it, until the block ends."""

    def __init__(self, ref: Any) -> None:
        self._free = threading.Event()
        entered = threading.Event()

        def hold(_actor: object) -> None:
            entered.set()
            self._free.wait(2 * WATCHDOG)

        ref.send(hold)
        assert entered.wait(WATCHDOG)

    def release(self) -> None:
        self._free.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
