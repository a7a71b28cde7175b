"""`Scheduler`: what runs the actors of one broker, and what those share.

`Dispatcher` runs them on threads of its own; `dmq_actors.testing.SeededScheduler` in the thread of
the test, in an order that a seed decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from dmq_actors._runtime.failures import ActorFailures
from dmq_actors._runtime.gate import Gates
from dmq_actors._runtime.ref import BrokerRef

if TYPE_CHECKING:
    from collections.abc import Callable

    import pykka

    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.filtered_mailbox import Filter
    from dmq_actors._runtime.promise import Promise

TURN = 64
"""Messages an actor may handle before the others get their turn."""


class Scheduler(ABC):
    """A run queue of actors, and whatever serves it. Belongs to one broker."""

    turn = TURN
    """Messages an actor may handle before the others get their turn."""

    schedule: Callable[[Callable[[], object]], None]
    """Let an actor run when its turn comes. A function in C: no signal can halve it."""

    def __init__(self) -> None:
        self.failures = ActorFailures()
        self.filters: list[Filter] = []
        """What each message passes before it is handled; for tests. None costs nothing."""
        self.gates = Gates(self.run_soon, self.ensure)
        """At which promises of its actors are waited for."""

    @abstractmethod
    def stop(self) -> None:
        """End, after what is scheduled now."""

    @abstractmethod
    def join(self, deadline: float) -> list[str]:
        """Wait until this monotonic time; the names of threads that still run."""

    def run_soon(self, work: Callable[[], object]) -> None:
        """Let this run outside of any actor, in a thread that serves; takes no lock."""
        self.schedule(work)

    def ensure(self) -> None:  # noqa: B027  # most have nothing to do
        """Somebody waits: see to it that there is a thread that serves."""

    # What a scheduler without threads does otherwise

    def bind(self, clock: Clock) -> None:  # noqa: B027  # most have nothing to do
        """A broker with this clock begins to use this scheduler."""

    def check_caller(self) -> None:  # noqa: B027  # most have nothing to do
        """Refuse a call from a thread that may not make one."""

    def own(self, promise: Promise[Any]) -> None:  # noqa: B027  # most have nothing to do
        """Let whoever waits for this promise do so in the way of this scheduler."""

    def survived(self, error: BaseException) -> None:  # noqa: B027  # most have nothing to do
        """An actor was hit by this, and goes on; in the thread that runs it."""

    def new_ref(self, actor: pykka.Actor) -> BrokerRef[Any]:
        """The reference to a new actor."""
        return BrokerRef(actor, self.gates)
