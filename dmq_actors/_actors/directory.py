"""`Directory`: which topics and groups there are, for every thread to read.

Only the coordinator writes, and it never changes a mapping that others may be reading: it makes a
new one and binds the attribute, which is atomic. So a look-up needs no lock and no message, and
what a reader got stays whole. A handle may be out of date the moment it is read; the actor behind
it then answers that it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmq_actors._core.arguments import check_name, show
from dmq_actors._core.dead_letters import is_dead_letter_topic
from dmq_actors.errors import (
    InvalidTypeError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dmq_actors._actors.group import ConsumerGroupActor
    from dmq_actors._actors.partition import PartitionActor
    from dmq_actors._runtime.ref import BrokerRef
    from dmq_actors.config import GroupConfig, TopicConfig


@dataclass(frozen=True, slots=True, eq=False)
class TopicHandle:
    """One topic; another of the same name has another handle."""

    name: str
    config: TopicConfig
    partitions: tuple[BrokerRef[PartitionActor], ...]


@dataclass(frozen=True, slots=True, eq=False)
class GroupHandle:
    """One consumer group; another of the same name has another handle."""

    group_id: str
    topic: TopicHandle
    config: GroupConfig
    incarnation: int
    ref: BrokerRef[ConsumerGroupActor]


class Directory:
    """The topics and groups of one broker, by name, in order of creation."""

    def __init__(self) -> None:
        self.topics: Mapping[str, TopicHandle] = {}
        self.groups: Mapping[str, GroupHandle] = {}

    def topic(self, name: object) -> TopicHandle:
        """The topic of this name.

        Raises:
            InvalidTypeError, InvalidArgumentError: this can be no topic's name.
            UnknownTopicError: there is no such topic.
        """
        if isinstance(name, str):
            handle = self.topics.get(name)
            if handle is not None:
                return handle
        checked = check_name("topic name", name)
        hint = (
            "it is created when a message fails too often"
            if is_dead_letter_topic(checked)
            else "create it with create_topic"
        )
        raise UnknownTopicError(f"there is no topic {checked!r}; {hint}")

    def check_current(self, topic: TopicHandle) -> None:
        """Refuse a handle whose topic was deleted, also if there is a new one of that name.

        Raises:
            UnknownTopicError: it was.
        """
        if self.topics.get(topic.name) is not topic:
            raise deleted_topic(topic.name)

    def partition(self, topic: object, partition: object) -> BrokerRef[PartitionActor]:
        """The actor of one partition.

        Raises:
            UnknownTopicError: as `topic`.
            UnknownPartitionError: the topic has no such partition.
        """
        handle = self.topic(topic)
        count = len(handle.partitions)
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise InvalidTypeError(
                f"a partition is an int, found {type(partition).__name__} {show(partition)}"
            )
        if not 0 <= partition < count:
            raise UnknownPartitionError(
                f"topic {handle.name!r} has no partition {show(partition)}; "
                f"it has partitions 0 to {count - 1}"
            )
        return handle.partitions[partition]

    def group(self, group_id: object) -> GroupHandle:
        """The group of this name.

        Raises:
            InvalidTypeError, InvalidArgumentError: this can be no group's name.
            UnknownGroupError: there is no such group.
        """
        if isinstance(group_id, str):
            handle = self.groups.get(group_id)
            if handle is not None:
                return handle
        raise unknown_group(check_name("group id", group_id))

    def group_of_incarnation(self, incarnation: int) -> GroupHandle | None:
        """The living group that made a delivery, or None if that group is gone."""
        for handle in self.groups.values():
            if handle.incarnation == incarnation:
                return handle
        return None


def deleted_topic(topic: str) -> UnknownTopicError:
    """The error for a topic that does not exist any more."""
    return UnknownTopicError(f"topic {topic!r} was deleted; create it anew, or use another")


def unknown_group(group_id: str) -> UnknownGroupError:
    """The error for a group that does not exist, or does no more."""
    return UnknownGroupError(
        f"there is no consumer group {group_id!r}; it was never created, or deleted, alone or with "
        "its topic; create it with create_consumer_group"
    )
