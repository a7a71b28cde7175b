"""Redriving: dead letters go back to the topic they came from, each once.

An ordinary consumer group on the dead-letter topic remembers which were redriven. It has a member
only while a redrive runs, so what was left is delivered to the next one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from dmq_actors._core.arguments import check_int
from dmq_actors._core.batch import check_message
from dmq_actors._core.dead_letters import dead_letter_topic, exhume, redrive_group
from dmq_actors.errors import GroupExistsError, InvalidTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors.info import TopicInfo
    from dmq_actors.messages import DeliveredMessage, Message, StoredMessage

_BATCH = 500
_MEMBER = "redrive"


class Calls(Protocol):
    """What a redrive needs of a `MessageQueue`: an ordinary user's calls."""

    def list_topics(self) -> list[str]:
        """See `MessageQueue.list_topics`."""
        ...

    def get_topic_info(self, topic: str) -> TopicInfo:
        """See `MessageQueue.get_topic_info`."""
        ...

    def create_consumer_group(self, group_id: str, topic: str) -> None:
        """See `MessageQueue.create_consumer_group`."""
        ...

    def add_consumer(self, group_id: str, consumer_id: str) -> object:
        """See `MessageQueue.add_consumer`."""
        ...

    def remove_consumer(self, group_id: str, consumer_id: str) -> object:
        """See `MessageQueue.remove_consumer`."""
        ...

    def poll(self, group_id: str, consumer_id: str, max_messages: int) -> list[DeliveredMessage]:
        """See `MessageQueue.poll`."""
        ...

    def acknowledge(self, group_id: str, message: DeliveredMessage) -> object:
        """See `MessageQueue.acknowledge`."""
        ...

    def publish(
        self, topic: str, message: Message, *, partition: int | None, timeout: float
    ) -> StoredMessage:
        """See `MessageQueue.publish`."""
        ...


def redrive(
    mq: Calls,
    topic: str,
    max_messages: int | None,
    repair: Callable[[StoredMessage], Message | None] | None,
    timeout: float,
) -> list[StoredMessage]:
    """See `MessageQueue.redrive`. One at a time per broker: the caller holds the lock."""
    left = None if max_messages is None else check_int("max_messages", max_messages, minimum=0)
    if repair is not None and not callable(repair):
        raise InvalidTypeError(f"repair is a function or None, found {type(repair).__name__}")
    num_partitions = mq.get_topic_info(topic).num_partitions
    letters = dead_letter_topic(topic)
    if letters not in mq.list_topics():
        return []
    ends = {p.partition: p.next_offset for p in mq.get_topic_info(letters).partitions}
    group_id = redrive_group(topic)
    with suppress(GroupExistsError):  # from an earlier redrive: it knows which letters were done
        mq.create_consumer_group(group_id, letters)
    redriven: list[StoredMessage] = []
    mq.add_consumer(group_id, _MEMBER)
    try:
        while left is None or len(redriven) < left:
            room = _BATCH if left is None else min(_BATCH, left - len(redriven))
            batch = mq.poll(group_id, _MEMBER, room)
            if not batch:
                break
            for letter in batch:
                if letter.offset >= ends[letter.partition]:
                    continue
                repaired = letter if repair is None else repair(letter)
                if repaired is not None:
                    message = exhume(check_message(repaired))
                    partition = _home(letter, message, len(ends), num_partitions)
                    redriven.append(
                        mq.publish(topic, message, partition=partition, timeout=timeout)
                    )
                    mq.acknowledge(group_id, letter)
    finally:
        mq.remove_consumer(group_id, _MEMBER)
    return redriven


def _home(
    letter: DeliveredMessage, message: Message, dead_partitions: int, num_partitions: int
) -> int | None:
    """The partition it came from; None lets its key decide, if the key or the topic changed."""
    same = message.key == letter.key and dead_partitions == num_partitions
    return letter.partition if same else None
