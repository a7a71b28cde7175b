"""Snapshots that tell how topics, groups and the broker stand; plain data, never live."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmq_actors.config import GroupConfig, TopicConfig
    from dmq_actors.messages import DeliveredMessage


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition of a topic.

    * ``base_offset``: the first offset still in the log; also how many retention has dropped.
    * ``next_offset``: the offset the next message gets; also how many were ever published.
    * ``message_count``: how many are retained, ``next_offset - base_offset``.
    * ``size_bytes``: their size, or None where the topic has no ``retention_bytes``.
    * ``restarts``: how often its actor failed and was started again on the same log.
    """

    topic: str
    partition: int
    base_offset: int
    next_offset: int
    size_bytes: int | None = None
    restarts: int = 0

    @property
    def message_count(self) -> int:
        """How many messages are retained."""
        return self.next_offset - self.base_offset

    @property
    def published_total(self) -> int:
        """How many messages were ever stored here."""
        return self.next_offset

    @property
    def dropped_total(self) -> int:
        """How many messages retention has removed."""
        return self.base_offset


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its options and its partitions, by number."""

    topic: str
    config: TopicConfig
    partitions: tuple[PartitionInfo, ...]
    groups: tuple[str, ...] = ()

    @property
    def num_partitions(self) -> int:
        """How many partitions it has."""
        return len(self.partitions)

    @property
    def message_count(self) -> int:
        """How many messages are retained in all partitions."""
        return sum(partition.message_count for partition in self.partitions)

    @property
    def published_total(self) -> int:
        """How many messages were ever stored in all partitions."""
        return sum(partition.published_total for partition in self.partitions)

    @property
    def dropped_total(self) -> int:
        """How many messages retention has removed from all partitions."""
        return sum(partition.dropped_total for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class GroupPartitionInfo:
    """How far a group has come in one partition.

    * ``owner``: the member that reads it, or None.
    * ``committed_offset``: the next offset to read after a crash; everything below is done.
    * ``current_offset``: the next offset to deliver.
    * ``in_flight``: delivered and not completed, those that wait for a retry included.
    * ``retrying``: failed, and waiting for the next attempt.
    * ``held``: not delivered yet, waiting behind a retry of their key.
    * ``skipped_total``: removed by retention before the group read them.
    * ``lag``: ``next_offset - max(committed_offset, base_offset)``.
    """

    partition: int
    owner: str | None
    committed_offset: int
    current_offset: int
    in_flight: int
    retrying: int
    held: int
    skipped_total: int
    lag: int


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group: members in order of joining, who owns what, how far it has come.

    ``duplicates_total`` counts what an exactly-once group skipped because of its message id,
    ``dead_lettered_total`` what failed too often, ``restarts`` how often its actor was restarted.
    """

    group_id: str
    topic: str
    config: GroupConfig
    generation: int
    members: tuple[str, ...]
    assignments: dict[str, list[int]]
    partitions: tuple[GroupPartitionInfo, ...]
    duplicates_total: int = 0
    dead_lettered_total: int = 0
    restarts: int = 0

    @property
    def lag(self) -> int:
        """The lag over all partitions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def in_flight(self) -> int:
        """How many are in flight over all partitions."""
        return sum(partition.in_flight for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class ActorFailure:
    """An actor was hit by an exception, and there was no caller to tell. All of it is text.

    * ``actor``: its name, such as ``group-g``, ``partition-t-0``, ``coordinator``.
    * ``message``: what it was handling.
    * ``error``: the exception, and ``traceback`` where it comes from.
    """

    actor: str
    message: str
    error: str
    traceback: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.actor} failed at {self.message}: {self.error}"


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What ``close`` did.

    * ``in_flight``: by group, how many messages were delivered and not completed.
    * ``still_running``: threads that did not end in time; empty when all went well.
    * ``actor_failures``: what hit an actor and no caller was told, but for those that
      ``take_actor_failures`` has answered; the last hundred.
    """

    in_flight: dict[str, int] = field(default_factory=dict)
    still_running: tuple[str, ...] = ()
    actor_failures: tuple[ActorFailure, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether every actor stopped in time."""
        return not self.still_running


@dataclass(frozen=True, slots=True, eq=False)
class HandlerFailure:
    """A handler of a worker pool raised.

    * ``group_id``: the group of the pool.
    * ``message``: what it was working at.
    * ``error``: what it raised. The message was nacked with it, or given back when it was a
      `SystemExit` or the like, which stops the pool.
    """

    group_id: str
    message: DeliveredMessage
    error: BaseException
