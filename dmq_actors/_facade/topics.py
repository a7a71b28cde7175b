"""`TopicCalls`: topics, and publishing to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmq_actors._actors.coordinator import CoordinatorActor
from dmq_actors._actors.proxies import route_many, route_one
from dmq_actors._core.arguments import check_seconds
from dmq_actors._facade.calls import BrokerCalls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dmq_actors.config import Partitioner, RetentionOptions
    from dmq_actors.info import TopicInfo
    from dmq_actors.messages import Message, StoredMessage


class TopicCalls(BrokerCalls):
    """The part of `dmq_actors.MessageQueue` about topics."""

    def create_topic(
        self,
        topic: str,
        num_partitions: int = 1,
        *,
        retention_count: int | None = None,
        retention_bytes: int | None = None,
        retention_seconds: float | None = None,
        partitioner: str | Partitioner = "crc32",
        share_values: bool = False,
        dead_letters: RetentionOptions | None = None,
    ) -> TopicInfo:
        """Create a topic.

        Without any retention a topic keeps everything, and logs ``topic.growing`` at 1, 2, 4 …
        million messages. Retention works at each publish, on the partition written.

        Args:
            topic: 1 to 249 letters, digits, ``.``, ``_``, ``-``.
            num_partitions: 1 to 10,000; how many consumers of a group can work at the same time.
            retention_count: messages that a partition keeps at most.
            retention_bytes: bytes of keys and values that a partition keeps at most. Exact for
                text and bytes; numbers count 8, other objects their own size without what they
                refer to.
            retention_seconds: how long a message is kept, by a clock that does not jump.
            partitioner: ``"crc32"`` (as librdkafka and confluent-kafka), ``"murmur2"`` (as Kafka's
                Java client), or your own ``(key: bytes, num_partitions: int) -> int``, which runs
                in the publisher's thread.
            share_values: hand out the very objects that were published instead of copies. Faster
                for large objects, and then everybody must leave them unchanged.
            dead_letters: the retention of its dead-letter topic, a dict with any of
                ``retention_count``, ``retention_bytes``, ``retention_seconds``; by default dead
                letters are kept for ever.

        Returns:
            The topic as created.

        Raises:
            TopicExistsError: there is one of this name; use it, or delete it first.
            InvalidArgumentError: a name or option cannot be right; the message names the rule.
        """
        return self._wait(
            self._coordinator.call(
                CoordinatorActor.create_topic,
                topic,
                num_partitions,
                retention_count=retention_count,
                retention_bytes=retention_bytes,
                retention_seconds=retention_seconds,
                partitioner=partitioner,
                share_values=share_values,
                dead_letters=dead_letters,
            )
        )

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages, and every consumer group bound to it.

        Polls that wait in one of these groups end with `UnknownGroupError`. Its dead-letter topic
        stays: delete ``__dlq_{topic}`` as well if you want it gone.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        self._wait(self._coordinator.call(CoordinatorActor.delete_topic, topic))

    def list_topics(self) -> list[str]:
        """The names of all topics, in order of creation, dead-letter topics included."""
        return self._wait(self._coordinator.call(CoordinatorActor.list_topics))

    def get_topic_info(self, topic: str) -> TopicInfo:
        """A snapshot: options, groups, and for each partition its offsets, size and counters.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return self._wait(self._coordinator.call(CoordinatorActor.get_topic_info, topic))

    # Publishing

    def publish(
        self,
        topic: str,
        message: Message,
        *,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> StoredMessage:
        """Store one message and wait until it is stored.

        Args:
            topic: an existing topic; none is created by a typo.
            message: key, value and headers. With a key it goes to the key's partition, without one
                to the next partition in turn.
            partition: where to store it instead.
            timeout: seconds to wait at most.

        Returns:
            The message with its partition, offset, time stamp and id.

        Raises:
            UnknownTopicError, UnknownPartitionError: there is no such place.
            InvalidTypeError, InvalidArgumentError: something is wrong with the message.
            MessageTooLargeError: it alone exceeds ``retention_bytes``.
            BrokerTimeoutError: the outcome is unknown; it may have been stored.
            BrokerClosedError: nothing was stored, or the broker closed while it was.
        """
        seconds = check_seconds("timeout", timeout)
        directory = self._broker.directory
        stored = route_one(self._coordinator, directory, topic, message, partition)
        return stored.get(timeout=seconds)

    def publish_many(
        self, topic: str, messages: Iterable[Message], *, timeout: float = 30.0
    ) -> list[StoredMessage]:
        """Store a batch and wait until all of it is stored: the fast way to publish.

        All messages are checked before the first is stored. The order of messages that go to the
        same partition is kept.

        Returns:
            The stored messages, in the order given.

        Raises:
            As `publish`; when the wait ends early, some partitions may have stored their part.
        """
        seconds = check_seconds("timeout", timeout)
        directory = self._broker.directory
        stored = route_many(self._coordinator, directory, topic, messages)
        return stored.get(timeout=seconds)
