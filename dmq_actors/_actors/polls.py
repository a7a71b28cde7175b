"""`Polls`: who waits for messages in a group, and which fetches are under way for whom.

One poll of a consumer is served at a time (a *round*: one fetch from each partition that has
something), so two threads that poll as one consumer can never get the same message.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dmq_actors._runtime.promise import Promise

if TYPE_CHECKING:
    from collections.abc import Collection

    from dmq_actors._core.handout import Piece
    from dmq_actors._core.scan import Fetched
    from dmq_actors.errors import DMQError
    from dmq_actors.messages import DeliveredMessage


@dataclass(eq=False, slots=True)
class Poll:
    """One call of ``poll`` that is not answered yet."""

    consumer_id: str
    room: int
    deadline: float | None
    """Monotonic seconds; None waits for ever."""

    paused: Collection[int] = ()
    """Partitions it takes nothing of."""

    promise: Promise[list[DeliveredMessage]] = field(default_factory=Promise)
    answer: list[Piece] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many messages it still takes."""
        return self.room - sum(len(piece.messages) for piece in self.answer)

    def expired(self, now: float) -> bool:
        """Whether it has waited long enough."""
        return self.deadline is not None and self.deadline <= now


@dataclass(eq=False, slots=True)
class Round:
    """The fetches under way for the first poll of a consumer."""

    poll: Poll
    epochs: dict[int, int]
    """By partition, in the order asked; a result of an older epoch is void."""

    results: dict[int, Fetched] = field(default_factory=dict)
    missing: int = 0
    error: DMQError | None = None


class Polls:
    """The polls and rounds of all consumers of a group."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Poll]] = {}
        self._rounds: dict[str, Round] = {}

    def add(self, poll: Poll) -> None:
        """Queue a poll behind the others of its consumer."""
        self._waiting.setdefault(poll.consumer_id, deque()).append(poll)

    def is_waiting(self, poll: Poll) -> bool:
        """Whether a poll was not answered yet."""
        return poll in self._waiting.get(poll.consumer_id, ())

    def remove(self, poll: Poll) -> bool:
        """Take a poll out; False if it was answered before."""
        queue = self._waiting.get(poll.consumer_id)
        if queue is None or not self.is_waiting(poll):
            return False
        queue.remove(poll)
        if not queue:
            del self._waiting[poll.consumer_id]
        return True

    def of(self, consumer_id: str) -> list[Poll]:
        """The waiting polls of one consumer, first come first."""
        return list(self._waiting.get(consumer_id, ()))

    def consumers(self) -> list[str]:
        """The consumers that wait."""
        return list(self._waiting)

    def take_all(self, consumer_id: str) -> list[Poll]:
        """Take out all polls of a consumer, and forget its round."""
        self._rounds.pop(consumer_id, None)
        return list(self._waiting.pop(consumer_id, ()))

    def start_round(self, round_: Round) -> None:
        """Note that fetches are under way."""
        self._rounds[round_.poll.consumer_id] = round_

    def in_round(self, consumer_id: str) -> bool:
        """Whether fetches are under way for this consumer."""
        return consumer_id in self._rounds

    def is_current(self, round_: Round) -> bool:
        """Whether a round was not overtaken by the removal of its consumer or a restart."""
        return self._rounds.get(round_.poll.consumer_id) is round_

    def end_round(self, round_: Round) -> None:
        """All fetches of the round are in."""
        del self._rounds[round_.poll.consumer_id]

    def forget_rounds(self) -> None:
        """Fetches under way may never come back; their polls go on waiting."""
        self._rounds.clear()
