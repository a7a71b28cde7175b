"""`ManualClock`: time as an input of tests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dmq_actors._runtime.clock import Timer, TimerQueue

if TYPE_CHECKING:
    from collections.abc import Callable


class ManualClock:
    """A clock that stands still until told: no test has to sleep.

    Long polls, retry backoff and retention by age all run on the clock of the broker, so
    ``clock.advance(60)`` lets a minute pass at once.

    Args:
        time: the wall clock to begin with, seconds since 1970 UTC.

    Thread safety:
        Any thread may read it and advance it. Timers fire in the thread that advances, in the order
        of their due times; what they set off in the actors goes on from there.

    Example:
        >>> clock = ManualClock(time=1_000.0)
        >>> clock.advance(2.5)
        >>> clock.time(), clock.monotonic()
        (1002.5, 2.5)
    """

    def __init__(self, *, time: float = 1_700_000_000.0) -> None:
        self._lock = threading.Lock()
        self._wall = time
        self._monotonic = 0.0
        self._timers = TimerQueue()

    def time(self) -> float:
        """The wall clock, float seconds since 1970 UTC."""
        with self._lock:
            return self._wall

    def monotonic(self) -> float:
        """Float seconds that have been advanced."""
        with self._lock:
            return self._monotonic

    def call_at(self, due: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` when the clock has been advanced to `due`."""
        timer = Timer(due, callback)
        with self._lock:
            self._timers.add(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass, and fire the timers that become due.

        Args:
            seconds: 0 or more.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds}); set_time can")
        with self._lock:
            self._wall += seconds
            self._monotonic += seconds
            due = self._timers.pop_due(self._monotonic)
        for timer in due:
            timer.fire()

    def next_timer(self) -> float | None:
        """When the next timer is due, on the monotonic clock; None if there is none."""
        with self._lock:
            return self._timers.next_due()

    def advance_to_next_timer(self) -> bool:
        """Let time pass until the next timer is due, and fire it with all that are due then.

        Returns:
            False, and no time has passed, if there is no timer: nothing waits for time to pass.
        """
        with self._lock:
            due = self._timers.next_due()
            if due is None:
                return False
            due = max(due, self._monotonic)
            self._wall += due - self._monotonic
            self._monotonic = due  # exactly: a sum of floats could stay just below
            timers = self._timers.pop_due(due)
        for timer in timers:
            timer.fire()
        return True

    def set_time(self, time: float) -> None:
        """Let the wall clock jump, as an operator or NTP does; the monotonic clock stays."""
        with self._lock:
            self._wall = time
