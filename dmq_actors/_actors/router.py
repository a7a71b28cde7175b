"""`Router`: the part of the coordinator that says where messages go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmq_actors import events
from dmq_actors._core.batch import ROUND_ROBIN, Batch
from dmq_actors._core.traffic import Traffic
from dmq_actors._runtime.log import log
from dmq_actors.errors import InvalidTypeError

if TYPE_CHECKING:
    from dmq_actors._actors.directory import Directory, TopicHandle
    from dmq_actors.config import TopicConfig
    from dmq_actors.messages import StoredMessage


class Router:
    """The round-robin counters and message counts of all topics."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._traffic: dict[str, Traffic] = {}
        self.batches = 0
        """How many were routed, dead letters included."""

    def add(self, topic: str, config: TopicConfig) -> None:
        """A topic was created: its turn begins at partition 0."""
        self._traffic[topic] = Traffic(config)

    def remove(self, topic: str) -> None:
        """A topic was deleted."""
        del self._traffic[topic]

    def route(self, topic: TopicHandle, batch: Batch) -> list[int]:
        """The partition of each message of a batch.

        Raises:
            UnknownTopicError: the topic was deleted since the batch was prepared for it.
            InvalidTypeError: not a prepared batch.
        """
        if not isinstance(batch, Batch):
            raise InvalidTypeError(
                f"expected a prepared Batch, found {type(batch).__name__}; "
                "publish through MessageQueue.publish or mq.coordinator"
            )
        self._directory.check_current(topic)
        traffic = self._traffic[topic.name]
        self.batches += 1
        partitions = batch.partitions
        if ROUND_ROBIN in partitions:
            partitions = traffic.deal(partitions)
        if traffic.count(len(partitions)):
            log.warning(events.TOPIC_GROWING, topic=topic.name, messages=traffic.published)
        return partitions


def in_order(places: list[list[int]], parts: list[list[StoredMessage]]) -> list[StoredMessage]:
    """What the partitions stored, in the order of the batch; `places` tells where each stood."""
    stored: list[Any] = [None] * sum(map(len, places))
    for chosen, part in zip(places, parts, strict=True):
        for place, message in zip(chosen, part, strict=True):
            stored[place] = message
    return stored
