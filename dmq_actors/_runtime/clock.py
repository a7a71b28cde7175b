"""Time as an input: what time it is, and what shall happen later.

One thread serves all timers of a broker; a timer sends a message to an actor, so no actor waits.
`dmq_actors.testing.ManualClock` has the same three methods and moves only when told.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from dmq_actors import events
from dmq_actors._runtime.failures import safe_repr
from dmq_actors._runtime.here import here
from dmq_actors._runtime.log import log
from dmq_actors._runtime.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
        callback = self.callback
        if callback is None:
            return
        try:
            callback()
        except Exception:  # noqa: BLE001  # the other timers must still fire
            log.error(events.CALLBACK_FAILED, callback=safe_repr(callback), exc_info=True)
        self.callback = None  # last: an exception thrown in before it may fire it twice, not never


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
    """Timers by due time. Not thread-safe: whoever owns it sees to that.

    Those that were cancelled are swept out whenever their number may have doubled, so a queue is
    never longer than twice what is due, and adding stays cheap.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._sweep_at = 64

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, timer: Timer) -> bool:
        """Add a timer; True if it is the next one due."""
        if len(self._heap) >= self._sweep_at:
            living = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(living)
            self._heap = living
            self._sweep_at = max(64, 2 * len(living))
        heapq.heappush(self._heap, (timer.due, next(self._order), timer))
        return self._heap[0][2] is timer

    def next_due(self) -> float | None:
        """When the next timer is due that was not cancelled."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[Timer]:
        """The timers that are due, in order; each is removed after it was looked at."""
        while self._heap and self._heap[0][0] <= now:
            entry = self._heap[0]
            yield entry[2]
            if self._heap and self._heap[0] is entry:
                heapq.heappop(self._heap)

    def pop_due(self, now: float) -> list[Timer]:
        """Remove and return the timers that are due, in order."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due


class SystemClock:
    """The clocks of the system, and a timer thread that starts with the first timer.

    Whoever sets a timer takes no lock: it puts the timer where the thread finds it, and wakes the
    thread if that would sleep for too long.
    """

    def __init__(self) -> None:
        self._timers = TimerQueue()  # the thread's own
        self._added: deque[Timer] = deque()
        self._alarm: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wakes_at = float("-inf")
        self._closed = False
        self._service = Service("dmq-clock", self._serve, self._hit)

    def time(self) -> float:
        """See `Clock.time`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        """See `Clock.call_at`."""
        timer = Timer(due, callback)
        self._added.append(timer)
        if not self._service.started and not self._closed:
            with suppress(RuntimeError):  # no thread to be had now; `ensure` tries again
                self._service.start()
        if due < self._wakes_at:
            self._alarm.put(None)
        return timer

    def ensure(self) -> None:
        """Somebody waits: see to it that there is a thread, if there is a timer."""
        if self._added or self._service.started:
            self._service.ensure()

    def close(self, deadline: float) -> bool:
        """Drop all timers and end the thread; False if it still runs at this monotonic time."""
        self._closed = True
        self._alarm.put(None)
        return not self._service.join(deadline)

    def _serve(self) -> None:
        here.serves = True
        while not self._closed:
            # In this order: whoever adds a timer from here on finds a time that tells it to wake
            # this thread, or is found below.
            self._wakes_at = float("inf")
            self._take_added()
            due = self._timers.next_due()
            now = time.monotonic()
            if due is not None and due <= now:
                self._fire_due(now)
                continue
            self._wakes_at = float("inf") if due is None else due
            if self._added:
                continue
            with suppress(queue.Empty):
                wait = None if due is None else min(due - now, threading.TIMEOUT_MAX)
                self._alarm.get(timeout=wait)
                while True:
                    self._alarm.get_nowait()

    def _take_added(self) -> None:
        while self._added:
            # Looked at, then taken: twice is harmless (a timer fires once), not at all is not.
            self._timers.add(self._added[0])
            self._added.popleft()

    def _fire_due(self, now: float) -> None:
        for timer in self._timers.due(now):
            timer.fire()

    @staticmethod
    def _hit(error: BaseException) -> None:
        log.error(events.ACTOR_FAILED, actor="clock", message="between two timers", exc_info=error)
