"""`Broker`: what is behind a `MessageQueue`: its actors from the first to the last breath.

Separate from the facade so that a facade nobody holds any more can be collected, and its actors
stopped. States: open, ending, closing, closed; never back.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from dmq_actors import events
from dmq_actors._actors.clients import Clients
from dmq_actors._actors.coordinator import CoordinatorActor
from dmq_actors._actors.directory import Directory
from dmq_actors._actors.handler_failures import HandlerFailures
from dmq_actors._runtime.clock import SystemClock
from dmq_actors._runtime.dispatcher import Dispatcher
from dmq_actors._runtime.forks import fork_count, forked_error
from dmq_actors._runtime.here import here
from dmq_actors._runtime.log import log
from dmq_actors._runtime.promise import Promise
from dmq_actors._runtime.ref import closed_error
from dmq_actors.errors import DMQError
from dmq_actors.info import CloseReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.filtered_mailbox import Filter
    from dmq_actors._runtime.scheduler import Scheduler
    from dmq_actors.info import ActorFailure

_EXIT_TIMEOUT = 1.0
_ACTORS_SHARE = 0.25
_open_brokers: weakref.WeakSet[Broker] = weakref.WeakSet()


class Broker:
    """The coordinator, the directory, the clock, the dispatcher, and how they end.

    ``_ending``: the clients come to their end; calls are still taken, new clients are not.
    ``_closing``: calls are refused.
    """

    def __init__(
        self,
        clock: Clock | None,
        actor_threads: int = 1,
        scheduler: Scheduler | None = None,
        new_filter: Callable[[Clock], Filter] | None = None,
    ) -> None:
        self._own_clock = None if clock is not None else SystemClock()
        self._forks = fork_count()
        self._closers: list[object] = []  # the first one ends it; no lock, see `abandon`
        self._ending = False
        self._closing = False
        self._clients_left: list[str] = []
        self._in_flight: Promise[dict[str, int]] = Promise()
        self.redriving = threading.RLock()
        self.clock: Clock = clock or cast("SystemClock", self._own_clock)
        self.directory = Directory()
        self.clients = Clients()
        self.failures = HandlerFailures()
        self._dispatcher = scheduler or Dispatcher(actor_threads)
        self.run_soon: Callable[[Callable[[], None]], None] = self._dispatcher.schedule
        """Let the dispatcher run this; takes no lock, so finalizers and signal handlers may."""
        self._dispatcher.bind(self.clock)
        self._dispatcher.own(self._in_flight)
        if new_filter is not None:
            self._dispatcher.filters.append(new_filter(self.clock))
        self.coordinator = CoordinatorActor.spawn(self.directory, self.clock, self._dispatcher)
        _open_brokers.add(self)

    def check_open(self) -> None:
        """Refuse a call after `close` has begun, or in the child of a fork.

        Raises:
            BrokerClosedError, BrokerForkedError: as said.
        """
        if self._forks != fork_count():
            raise forked_error()
        if self._closing:
            raise closed_error()

    @property
    def is_closed(self) -> bool:
        """Whether `close` has begun."""
        return self._closing

    def close(self, timeout: float) -> CloseReport:
        """Stop everything within `timeout` seconds; a second caller waits as the first does."""
        if self._forks != fork_count():
            return CloseReport()
        self._dispatcher.check_caller()
        in_actor = here.current is not None or here.serves
        started = time.monotonic()
        deadline = started if in_actor else started + timeout
        me = object()
        self._closers.append(me)  # the one step that decides between two who close
        first = not self._ending and self._closers[0] is me
        self._ending = True
        if first:
            try:  # some of the time is kept for the actors
                self._clients_left = self.clients.end(deadline - _ACTORS_SHARE * timeout)
            finally:
                self._closing = True
                self._begin_stop()
        return self._finish_stop(deadline)

    def abandon(self) -> None:
        """Let everything stop, without waiting for it.

        Safe anywhere, also where the garbage collector interrupts a thread that holds one of our
        locks: it takes none, and the rest is done by the dispatcher.
        """
        if self._forks == fork_count() and not self._ending:
            self._ending = self._closing = True
            self._dispatcher.schedule(self._stop_unattended)

    def _stop_unattended(self) -> None:
        self._begin_stop()
        if self._own_clock is not None:
            self._own_clock.close(deadline=0.0)

    def _begin_stop(self) -> None:
        """Stop groups, partitions, coordinator, and then the threads that ran them."""
        stopping = self.coordinator.call(CoordinatorActor.shut_down, closed_error)
        stopping.pipe_to(self._in_flight)
        # Only then: an actor with much to do is scheduled again and again until its end.
        stopping.when_done(lambda _: self._dispatcher.stop())

    def _finish_stop(self, deadline: float) -> CloseReport:
        in_flight: dict[str, int] = {}
        with suppress(DMQError):  # the report names the threads that are still at it
            in_flight = self._in_flight.get(timeout=deadline - time.monotonic())
        still_running = [*self._clients_left, *self._dispatcher.join(deadline)]
        if self._own_clock is not None and not self._own_clock.close(deadline):
            still_running.append("dmq-clock")
        if not still_running:
            _open_brokers.discard(self)
        counts = {group: count for group, count in in_flight.items() if count}
        log.info(events.BROKER_CLOSED, in_flight=counts, still_running=still_running)
        return CloseReport(counts, tuple(still_running), self._dispatcher.failures.seen())

    def take_actor_failures(self) -> list[ActorFailure]:
        """What hit an actor and no caller was told, since the last call."""
        return self._dispatcher.failures.take()


@atexit.register
def _close_at_exit() -> None:
    # A daemon thread that logs while the interpreter goes down can abort the process.
    for broker in list(_open_brokers):
        with suppress(DMQError):  # one that only another thread may close has no threads
            broker.close(_EXIT_TIMEOUT)
