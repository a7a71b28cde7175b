"""`ConsumerView`: what a consumer tells of itself without asking anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmq_actors._clients.reader import Reader


class ConsumerView:
    """What `dmq_actors.Consumer` and `dmq_actors.AsyncConsumer` have in common. Any thread."""

    def __init__(self, reader: Reader, keeps_alive: object) -> None:
        self._reader = reader
        self._keeps_alive = keeps_alive

    def __repr__(self) -> str:
        state = "closed" if self._reader.closed else f"owns {self.assignment}"
        return f"<{type(self).__name__} {self.consumer_id!r} of group {self.group_id!r}: {state}>"

    @property
    def group_id(self) -> str:
        """The group it reads for."""
        return self._reader.group.group_id

    @property
    def topic(self) -> str:
        """The topic the group reads."""
        return self._reader.group.topic.name

    @property
    def consumer_id(self) -> str:
        """Its name in the group."""
        return self._reader.session.consumer_id

    @property
    def generation(self) -> int:
        """The generation of the group at the last rebalance; 0 before it has joined."""
        return self._reader.session.assignment.generation

    @property
    def assignment(self) -> list[int]:
        """The partitions it owns at this moment; listeners hear of a change at the next poll."""
        return self._reader.assignment

    @property
    def paused(self) -> list[int]:
        """The partitions that are paused."""
        return sorted(self._reader.paused)

    def wakeup(self) -> None:
        """Let the poll that waits, or else the next one, return ``[]`` at once; end an iteration.

        Any thread may call it. Several before the next poll count as one.
        """
        self._reader.wakeup()
