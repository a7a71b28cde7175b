"""What topics and groups are made with, and the vocabulary of their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypedDict

BEGINNING: Final = -1
"""For ``seek``: the first offset still in the log. **In Kafka's clients this is -2.**"""

END: Final = -2
"""For ``seek``: the offset of the next message to come. **In Kafka's clients this is -1.**"""

DEAD_LETTER_PREFIX: Final = "__dlq_"
"""The dead letters of topic ``t`` are in topic ``__dlq_t``."""

Partitioner = Callable[[bytes, int], int]
"""A user's own routing: ``(key bytes, num_partitions) -> partition``; runs in their thread."""


class Delivery(StrEnum):
    """What a group promises when a consumer crashes."""

    AT_MOST_ONCE = "at_most_once"
    """Committed before it is handed out: may be lost, never doubled."""

    AT_LEAST_ONCE = "at_least_once"
    """Delivered again until completed: never lost, may be doubled."""

    EXACTLY_ONCE = "exactly_once"
    """As at-least-once, and nothing twice that was completed or is with a live member."""


class StartFrom(StrEnum):
    """Where a new group starts; resolved once, when the group is created."""

    EARLIEST = "earliest"
    LATEST = "latest"


class RetryOrder(StrEnum):
    """What waits behind a message that waits for its next attempt."""

    KEY = "key"
    """Later messages of the same key; everything else goes on."""

    NONE = "none"
    """Nothing."""

    PARTITION = "partition"
    """The whole partition."""


class OnOffsetLost(StrEnum):
    """What a group does when retention removed messages it had not read."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


class AckResult(StrEnum):
    """What an acknowledgement did."""

    COMPLETED = "completed"
    RETRYING = "retrying"
    """A failure was counted; the message will be delivered again."""

    DEAD_LETTERED = "dead_lettered"
    """It failed too often. It is stored in the dead-letter topic (a group that reads a
    dead-letter topic leaves it where it is) and completed."""

    STALE = "stale"
    """This delivery is over: nothing changed."""


class RetentionOptions(TypedDict, total=False):
    """The limits of what a partition keeps; see ``create_topic``."""

    retention_count: int | None
    retention_bytes: int | None
    retention_seconds: float | None


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The options of a topic; see `MessageQueue.create_topic`."""

    num_partitions: int = 1
    retention_count: int | None = None
    retention_bytes: int | None = None
    retention_seconds: float | None = None
    partitioner: str | Partitioner = "crc32"
    share_values: bool = False
    dead_letters: RetentionOptions | None = None

    def for_dead_letters(self) -> TopicConfig:
        """The options of the topic that takes the dead letters of this one."""
        return TopicConfig(
            num_partitions=self.num_partitions,
            partitioner=self.partitioner,
            share_values=self.share_values,
            **(self.dead_letters or {}),
        )


class TopicOptions(RetentionOptions, total=False):
    """The keyword options of ``create_topic``."""

    partitioner: str | Partitioner
    share_values: bool
    dead_letters: RetentionOptions | None


class GroupOptions(TypedDict, total=False):
    """The keyword options of ``create_consumer_group``."""

    start_from: str
    assignor: str
    max_failures: int
    retry_backoff: float
    retry_backoff_max: float
    retry_order: str
    on_offset_lost: str


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The options of a consumer group; see `MessageQueue.create_consumer_group`."""

    delivery: Delivery = Delivery.AT_LEAST_ONCE
    start_from: StartFrom = StartFrom.EARLIEST
    assignor: str = "modular"
    max_failures: int = 3
    retry_backoff: float = 0.0
    retry_backoff_max: float = 60.0
    retry_order: RetryOrder = RetryOrder.KEY
    on_offset_lost: OnOffsetLost = OnOffsetLost.EARLIEST
