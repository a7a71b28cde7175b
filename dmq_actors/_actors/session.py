"""`Session`: what a `Consumer` and its group share, so that neither has to ask the other.

The group writes what the consumer owns and why it is over; the consumer reads it in any thread.
Each of these is bound as a whole and never changed in place, so a reader sees one state or the
next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dmq_actors.errors import DMQError


class Assignment(NamedTuple):
    """The partitions of one member, as of one generation."""

    generation: int
    since: Mapping[int, int]
    """By partition, the generation in which this member got it. One that was lost and came back
    has another number: what was in flight is not this member's any more."""


NOTHING = Assignment(0, {})


@dataclass(eq=False, slots=True)
class Session:
    """The membership of one `Consumer`; durations in seconds, None for no limit."""

    consumer_id: str
    max_poll_interval: float | None = None
    session_timeout: float | None = None

    is_worker: bool = False
    """Whether it polls whenever it has nothing to do, as the workers of a pool do."""

    assignment: Assignment = NOTHING
    """Written by the group at every rebalance."""

    why_ended: Callable[[], DMQError] | None = None
    """Set by the group when this consumer is no member any more."""

    wakeups: int = 0
    """Counted by the consumer; a poll that has not seen the last one is answered at once."""

    polls: int = 0
    polled_at: float = 0.0
    seen_at: float = 0.0
    """For the group alone: polls that wait, when the last one ended, and the last sign of life."""

    def due(self, now: float) -> float:
        """The monotonic time at which this member will have been silent for too long."""
        if self.polls:
            self.polled_at = self.seen_at = now  # whoever waits here is alive
        dues = [float("inf")]
        if self.max_poll_interval is not None:
            dues.append(self.polled_at + self.max_poll_interval)
        if self.session_timeout is not None:
            dues.append(self.seen_at + self.session_timeout)
        return min(dues)
