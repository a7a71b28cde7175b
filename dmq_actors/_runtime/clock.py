"""Time as an input: what time it is, and what shall happen later.

One thread serves all timers of a broker; a timer sends a message to an actor, so no actor waits.
`dmq_actors.testing.ManualClock` has the same three methods and moves only when told.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from typing import TYPE_CHECKING, Protocol

from dmq_actors import events
from dmq_actors._runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer:
    """Something that shall happen at a monotonic time, unless it is cancelled."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Let it not happen. Harmless when it has."""
        self.callback = None

    def fire(self) -> None:
        """Let it happen, once; what it raises is logged."""
        callback, self.callback = self.callback, None
        if callback is None:
            return
        try:
            callback()
        except Exception:  # noqa: BLE001  # the other timers must still fire
            log.error(events.CALLBACK_FAILED, callback=repr(callback), exc_info=True)


class Clock(Protocol):
    """What a broker needs of time; thread-safe."""

    def time(self) -> float:
        """The wall clock, float seconds since 1970 UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Float seconds from some start. Never goes back."""
        ...

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` at this monotonic time, in a thread that it must not block."""
        ...


class TimerQueue:
    """Timers by due time. Not thread-safe: the clock that owns it holds a lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def add(self, timer: Timer) -> bool:
        """Add a timer; True if it is the next one due."""
        heapq.heappush(self._heap, (timer.due, next(self._order), timer))
        return self._heap[0][2] is timer

    def next_due(self) -> float | None:
        """When the next timer is due that was not cancelled."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[Timer]:
        """Remove and return the timers that are due, in order."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due


class SystemClock:
    """The clocks of the system, and a timer thread that starts with the first timer."""

    def __init__(self) -> None:
        self._timers = TimerQueue()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def time(self) -> float:
        """See `Clock.time`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        """See `Clock.call_at`."""
        timer = Timer(due, callback)
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="dmq-clock", daemon=True)
                self._thread.start()
            if self._timers.add(timer):
                self._changed.notify()
        return timer

    def close(self, deadline: float) -> bool:
        """Drop all timers and end the thread; False if it still runs at this monotonic time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(deadline - time.monotonic(), 0.0))
            return not thread.is_alive()
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                due: list[Timer] = []
                while not due:
                    if self._closed:
                        return
                    next_due = self._timers.next_due()
                    if next_due is not None and next_due <= time.monotonic():
                        due = self._timers.pop_due(time.monotonic())
                    else:
                        wait = None if next_due is None else next_due - time.monotonic()
                        self._changed.wait(wait and min(wait, threading.TIMEOUT_MAX))
            for timer in due:
                timer.fire()
