"""`MessageQueue`: the broker as its users see it.

Every method sends one message to an actor and waits for the answer, with a bound and typed errors.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Self, TypeVar, cast

from dmq_actors._actors.broker import Broker
from dmq_actors._actors.coordinator import CoordinatorActor
from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._actors.proxies import CoordinatorProxy, route_many, route_one
from dmq_actors._core.arguments import check_int, check_seconds
from dmq_actors._core.values import copy_in
from dmq_actors.config import AckResult, Delivery, OnOffsetLost, RetryOrder, StartFrom
from dmq_actors.errors import InvalidTypeError, UnknownGroupError
from dmq_actors.messages import DeliveredMessage
from dmq_actors.redrive import redrive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from dmq_actors._actors.clock import Clock
    from dmq_actors._actors.promise import Promise
    from dmq_actors._actors.proxies import GroupProxy, PartitionProxy
    from dmq_actors._actors.ref import BrokerRef
    from dmq_actors.config import Partitioner
    from dmq_actors.info import CloseReport, GroupInfo, TopicInfo
    from dmq_actors.messages import Message, StoredMessage

T = TypeVar("T")


class MessageQueue:
    """An embedded message broker: topics, partitions, consumer groups, in this process.

    Use it as a context manager, or call `close`. A program that forgets both still exits at once.

    Args:
        call_timeout: seconds that a call may take at most, besides the time it was told to wait.
            A healthy broker answers in microseconds; the bound is for the other days.
        clock: where time comes from; `dmq_actors.testing.ManualClock` in tests.
        actor_threads: threads that run the actors, 1 to 64. One is fastest wherever Python has its
            global lock; more can pay on free-threaded builds.

    Thread safety:
        Every method may be called from any number of threads at the same time.

    Example:
        >>> with MessageQueue() as mq:
        ...     _ = mq.create_topic("greetings")
        ...     mq.create_consumer_group("readers", "greetings")
        ...     _ = mq.add_consumer("readers", "me")
        ...     _ = mq.publish("greetings", Message("hello"))
        ...     [message.value for message in mq.poll("readers", "me")]
        ['hello']
    """

    def __init__(
        self, *, call_timeout: float = 30.0, clock: Clock | None = None, actor_threads: int = 1
    ) -> None:
        self._call_timeout = check_seconds("call_timeout", call_timeout, above_zero=True)
        threads = check_int("actor_threads", actor_threads, minimum=1, maximum=64)
        self._broker = Broker(clock, threads)
        self._coordinator_proxy = CoordinatorProxy(self._broker.coordinator, self._broker.directory)
        weakref.finalize(self, self._broker.abandon).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        topics, groups = self._broker.directory.topics, self._broker.directory.groups
        state = "closed" if self._broker.is_closed else "open"
        return f"<MessageQueue {state}: {len(topics)} topics, {len(groups)} groups>"

    def close(self, timeout: float = 10.0) -> CloseReport:
        """Stop the broker: refuse new calls, wake all waiters, stop all actors and their threads.

        What was accepted before is still done. Waiting polls and publishes end with
        `BrokerClosedError`. May be called again, and by several threads: all wait for the first.
        In the child of a fork it does nothing.

        Args:
            timeout: seconds to wait for the threads to end.

        Returns:
            What was left undone: messages in flight by group, threads that did not end in time.
        """
        return self._broker.close(check_seconds("timeout", timeout))

    # Topics

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
    ) -> TopicInfo:
        """Create a topic.

        Without any retention a topic keeps everything, and logs ``topic.growing`` at 1, 2, 4 …
        million messages. Retention works at each publish, on the partition written.

        Args:
            topic: 1 to 249 letters, digits, ``.``, ``_``, ``-``.
            num_partitions: 1 to 10,000; each is an actor with a thread, and the most consumers of
                a group that can work at the same time.
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

    # Groups

    def create_consumer_group(
        self,
        group_id: str,
        topic: str,
        delivery: str = Delivery.AT_LEAST_ONCE,
        *,
        start_from: str = StartFrom.EARLIEST,
        assignor: str = "modular",
        max_failures: int = 3,
        retry_backoff: float = 0.0,
        retry_backoff_max: float = 60.0,
        retry_order: str = RetryOrder.KEY,
        on_offset_lost: str = OnOffsetLost.EARLIEST,
    ) -> None:
        """Create a consumer group, bound to one topic for life.

        Args:
            group_id: as a topic's name.
            topic: an existing topic; a dead-letter topic too.
            delivery: ``"at_most_once"``, ``"at_least_once"`` or ``"exactly_once"``; see `Delivery`.
            start_from: ``"earliest"`` or ``"latest"``, resolved once, now.
            assignor: ``"modular"`` (partition p to member p modulo their number), ``"range"``,
                ``"roundrobin"`` or ``"sticky"`` (moves the fewest partitions).
            max_failures: nacks after which a message becomes a dead letter; 1 or more.
            retry_backoff: seconds before the second attempt, doubled for each further one.
            retry_backoff_max: the longest wait between two attempts, in seconds.
            retry_order: what waits behind a message that waits for its next attempt: ``"key"``
                (later messages of its key), ``"none"``, or ``"partition"`` (all later ones).
            on_offset_lost: where to go on when retention was faster than the group:
                ``"earliest"``, ``"latest"``, or ``"error"`` (`poll` raises `OffsetLostError`).

        Raises:
            GroupExistsError: there is one of this name.
            UnknownTopicError: there is no such topic.
            InvalidArgumentError: a name or option cannot be right; the message names the rule.
        """
        self._wait(
            self._coordinator.call(
                CoordinatorActor.create_consumer_group,
                group_id,
                topic,
                delivery,
                start_from=start_from,
                assignor=assignor,
                max_failures=max_failures,
                retry_backoff=retry_backoff,
                retry_backoff_max=retry_backoff_max,
                retry_order=retry_order,
                on_offset_lost=on_offset_lost,
            )
        )

    def delete_consumer_group(self, group_id: str) -> None:
        """Delete a group and all it knows; its waiting polls end with `UnknownGroupError`.

        Raises:
            UnknownGroupError: there is no such group.
        """
        self._wait(self._coordinator.call(CoordinatorActor.delete_consumer_group, group_id))

    def list_consumer_groups(self) -> list[str]:
        """The names of all groups, in order of creation."""
        return self._wait(self._coordinator.call(CoordinatorActor.list_consumer_groups))

    def get_group_info(self, group_id: str) -> GroupInfo:
        """A snapshot: members, assignments, generation, and for each partition offsets and lag.

        Raises:
            UnknownGroupError: there is no such group.
        """
        return self._wait(self._group(group_id).call(ConsumerGroupActor.info))

    def add_consumer(self, group_id: str, consumer_id: str) -> dict[str, list[int]]:
        """Let a consumer join a group; the partitions are dealt out anew at once.

        Args:
            group_id: an existing group.
            consumer_id: 1 to 249 printable characters, unlike those of the other members.

        Returns:
            The new assignments: the partitions of each member, in order of joining. A member
            beyond the number of partitions gets ``[]`` and takes over when an owner leaves.

        Raises:
            ConsumerExistsError: there is a member of this id; the first one stays.
            UnknownGroupError: there is no such group.
        """
        return self._wait(
            self._coordinator.call(CoordinatorActor.add_consumer, group_id, consumer_id)
        )

    def remove_consumer(self, group_id: str, consumer_id: str) -> dict[str, list[int]]:
        """Let a consumer leave a group; the partitions are dealt out anew at once.

        What it had acknowledged before counts; what it had in flight is delivered to the next
        owners, and its late acknowledgements are `AckResult.STALE`. Its waiting polls end with
        ``[]``.

        Returns:
            The new assignments.

        Raises:
            UnknownConsumerError: there is no such member.
            UnknownGroupError: there is no such group.
        """
        return self._wait(
            self._coordinator.call(CoordinatorActor.remove_consumer, group_id, consumer_id)
        )

    # Reading

    def poll(
        self,
        group_id: str,
        consumer_id: str,
        max_messages: int = 100,
        timeout: float | None = 0.0,
    ) -> list[DeliveredMessage]:
        """Take the next messages of this consumer's partitions.

        Each partition's messages come in offset order, and each poll starts with another
        partition. Two threads that poll as one consumer never get the same message. Polling alone
        never completes anything, except in an at-most-once group.

        Args:
            group_id: an existing group.
            consumer_id: a member. One that owns nothing waits like any other; an id that is no
                member gets ``[]`` at once, and a warning is logged.
            max_messages: 1 or more, over all partitions.
            timeout: seconds to wait for the first message; None waits as long as it takes. A
                rebalance that changes this consumer's partitions ends the wait early.

        Returns:
            The messages, or ``[]``. Each knows its ``generation`` and ``delivery_attempt``.

        Raises:
            UnknownGroupError: there is no such group, or it was deleted while this waited.
            OffsetLostError: retention took unread messages (``on_offset_lost="error"``); seek.
            BrokerClosedError: the broker was closed, maybe while this waited.
        """
        wait = None if timeout is None else check_seconds("timeout", timeout)
        group = self._group(group_id)
        polled = group.call(ConsumerGroupActor.poll, consumer_id, max_messages, wait)
        try:
            return polled.get(timeout=None if wait is None else wait + self._call_timeout)
        except BaseException:  # a time-out, a Ctrl-C: nobody will read the answer
            polled.abandon()
            raise

    def seek(self, group_id: str, partition: int, offset: int) -> int:
        """Move the whole group to an offset of one partition; the next poll starts there.

        Forward: what is skipped counts as done at the next `commit`. Backward: an at-least-once or
        at-most-once group gets everything from there on again; an exactly-once group only what it
        has not completed. Retries that wait in this partition are dropped from the schedule.

        Args:
            group_id: an existing group.
            partition: a partition of its topic.
            offset: `BEGINNING` (-1), `END` (-2), or an offset from ``base_offset`` to
                ``next_offset``. **The two numbers are the other way round in Kafka's clients.**

        Returns:
            The offset it was moved to: what BEGINNING or END was at this moment.

        Raises:
            InvalidOffsetError: out of range; the message names the range. Nothing was changed.
            UnknownPartitionError, UnknownGroupError: there is no such place.
        """
        return self._wait(self._group(group_id).call(ConsumerGroupActor.seek, partition, offset))

    # Completing

    def commit(
        self, group_id: str, consumer_id: str, offsets: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        """Complete what was delivered to this consumer.

        Args:
            group_id: an existing group.
            consumer_id: a member.
            offsets: by partition, the *next* offset to read (last + 1); all or nothing. None
                completes all that was delivered to this consumer in the partitions it owns now,
                except what was nacked.

        Returns:
            The committed offsets of the partitions concerned.

        Raises:
            StaleAssignmentError: a partition is not, or no longer, owned by this consumer. Poll
                again; its new owner gets what was not completed.
            UnknownConsumerError: this is no member (also a `StaleAssignmentError`).
            InvalidOffsetError: below the committed or above the current offset.
            UnknownGroupError, UnknownPartitionError: there is no such place.
        """
        return self._wait(
            self._group(group_id).call(ConsumerGroupActor.commit, consumer_id, offsets)
        )

    def acknowledge(
        self,
        group_id: str,
        message: DeliveredMessage,
        success: bool = True,  # noqa: FBT001, FBT002  # fixed by the original contract
        *,
        error: BaseException | str | None = None,
    ) -> AckResult:
        """Complete one message, or say that it failed.

        Never raises for the state of the message: a late acknowledgement changes nothing and
        answers `AckResult.STALE`. In an at-most-once group everything was completed by the poll,
        and this does nothing.

        Args:
            group_id: the group that delivered it.
            message: as `poll` returned it.
            success: False counts a failure; each counts, also of the same delivery. After
                ``max_failures`` the message goes to the dead-letter topic, before that it is
                delivered again.
            error: why it failed; kept in the headers of the dead letter.

        Returns:
            ``COMPLETED``, ``RETRYING``, ``DEAD_LETTERED`` or ``STALE``.

        Raises:
            UnknownGroupError: there is no such group, and there was none that made this delivery.
            InvalidTypeError: not a message as `poll` returns it.
        """
        self._broker.check_open()
        if not isinstance(message, DeliveredMessage):
            raise InvalidTypeError(
                f"expected a message as poll() returns it, found {type(message).__name__}"
            )
        directory = self._broker.directory
        try:
            group = directory.group(group_id)
            if not success and not group.topic.config.share_values:
                # The dead letter is made of this one should retention take the original.
                message = message.with_value(copy_in(message.value))
            return self._wait(
                group.ref.call(
                    ConsumerGroupActor.acknowledge, message, bool(success), _describe(error)
                )
            )
        except UnknownGroupError:
            if directory.group_of_incarnation(message.group_incarnation) is None:
                return AckResult.STALE  # the group that delivered it is gone
            raise

    def get_consumer_lag(self, group_id: str) -> dict[int, int]:
        """By partition: ``next_offset - max(committed_offset, base_offset)``.

        Raises:
            UnknownGroupError: there is no such group.
        """
        return self._wait(self._group(group_id).call(ConsumerGroupActor.lag))

    # Dead letters

    def redrive(
        self,
        topic: str,
        max_messages: int | None = None,
        *,
        repair: Callable[[Message], Message | None] | None = None,
        timeout: float = 30.0,
    ) -> list[StoredMessage]:
        """Publish the dead letters of a topic back to it, in their order per partition.

        Each is redriven once; those that come while this runs wait for the next time. A message
        that was redriven starts at attempt 1 and may become a dead letter again. The dead-letter
        topic keeps its log; what was redriven is remembered by a group of the broker's own.

        Args:
            topic: the topic they came from.
            max_messages: how many at most; None takes all.
            repair: gets each message as it was published (without the broker's headers) and
                answers the one to publish, or None to leave this dead letter for another time.
                Runs in this thread; what it raises ends the redrive.
            timeout: seconds for each publish.

        Returns:
            The messages as they are stored again.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        self._broker.check_open()
        with self._broker.redriving:
            return redrive(self, topic, max_messages, repair, check_seconds("timeout", timeout))

    # The actors

    @property
    def coordinator(self) -> CoordinatorProxy:
        """The coordinator by proxy: every call returns a `Promise` at once."""
        self._broker.check_open()
        return self._coordinator_proxy

    def partition_actor(self, topic: str, partition: int) -> PartitionProxy:
        """A partition by proxy: look at its log without a group.

        Raises:
            UnknownTopicError, UnknownPartitionError: there is no such partition.
        """
        self._broker.check_open()
        ref = self._broker.directory.partition(topic, partition)
        return cast("PartitionProxy", ref.proxy())

    def group_actor(self, group_id: str) -> GroupProxy:
        """A group by proxy: members, polls, commits, offsets.

        Raises:
            UnknownGroupError: there is no such group.
        """
        return cast("GroupProxy", self._group(group_id).proxy())

    @property
    def _coordinator(self) -> BrokerRef[CoordinatorActor]:
        self._broker.check_open()
        return self._broker.coordinator

    def _group(self, group_id: str) -> BrokerRef[ConsumerGroupActor]:
        self._broker.check_open()
        return self._broker.directory.group(group_id).ref

    def _wait(self, promise: Promise[T]) -> T:
        return promise.get(timeout=self._call_timeout)


def _describe(error: BaseException | str | None) -> str:
    """A text for a header; made here, because an exception's ``__str__`` is the user's code."""
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}"
    return error or ""
