"""`CoordinatorActor`: topics, groups, routing; the life and death of all other actors.

It decides and passes on; it never waits. A publish goes through it to the partition, which answers
the publisher directly. It is the only writer of the `Directory`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast

from dmq_actors import events
from dmq_actors._actors.directory import GroupHandle, TopicHandle, deleted_topic, unknown_group
from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._actors.partition import PartitionActor
from dmq_actors._actors.router import Router, in_order
from dmq_actors._core.arguments import check_new_topic_name
from dmq_actors._core.dead_letters import check_new_group_id, dead_letter_topic
from dmq_actors._core.group_state import GroupState
from dmq_actors._core.options import group_config, topic_config
from dmq_actors._core.partition_log import PartitionLog
from dmq_actors._runtime.base import FORWARDED, BrokerActor
from dmq_actors._runtime.log import log
from dmq_actors._runtime.promise import Promise, gather
from dmq_actors._runtime.ref import Call, Stop
from dmq_actors.config import Delivery, GroupConfig, StartFrom, TopicConfig
from dmq_actors.errors import DMQError, GroupExistsError, TopicExistsError
from dmq_actors.info import PartitionInfo, TopicInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._actors.directory import Directory
    from dmq_actors._actors.partition import Bounds
    from dmq_actors._actors.sent import Sender
    from dmq_actors._core.batch import Batch
    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.ref import BrokerRef
    from dmq_actors._runtime.scheduler import Scheduler
    from dmq_actors.config import GroupOptions, TopicOptions
    from dmq_actors.messages import StoredMessage


P = ParamSpec("P")
T = TypeVar("T")


class CoordinatorActor(BrokerActor):
    """The one actor that knows all others."""

    def __init__(self, directory: Directory, clock: Clock, dispatcher: Scheduler) -> None:
        super().__init__("coordinator", dispatcher)
        self._directory = directory
        self._clock = clock
        self._router = Router(directory)
        self._creating: dict[str, Promise[None]] = {}
        self._incarnations = 0
        self._stopping: set[Promise[Any]] = set()

    # Topics

    def create_topic(
        self, topic: str, num_partitions: int = 1, **options: Unpack[TopicOptions]
    ) -> TopicInfo:
        """Create a topic and start its partitions; the options are those of the facade.

        Raises:
            TopicExistsError: there is one of this name.
            InvalidArgumentError: a name or an option cannot be right.
        """
        config = topic_config(num_partitions, **options)
        if check_new_topic_name(topic) in self._directory.topics:
            raise TopicExistsError(
                f"there is a topic {topic!r} already; delete it first, or use another name"
            )
        self._start_topic(topic, config)
        empty = tuple(PartitionInfo(topic, number, 0, 0) for number in range(num_partitions))
        return TopicInfo(topic, config, empty)

    def delete_topic(self, topic: str) -> Promise[None]:
        """Delete a topic and every group bound to it.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        handle = self._directory.topic(topic)
        self._directory.topics = {
            name: other for name, other in self._directory.topics.items() if other is not handle
        }
        self._router.remove(topic)
        stopped = [
            self._stop_group(group)
            for group in list(self._directory.groups.values())
            if group.topic is handle
        ]
        stopped += [
            self._stop_actor(ref, partial(deleted_topic, topic)) for ref in handle.partitions
        ]
        log.info(events.TOPIC_DELETED, topic=topic)
        return gather(stopped).map(lambda _: None)

    def list_topics(self) -> list[str]:
        """The names of all topics, dead-letter topics included, in order of creation."""
        return list(self._directory.topics)

    def get_topic_info(self, topic: str) -> Promise[TopicInfo]:
        """A snapshot of a topic.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        handle = self._directory.topic(topic)
        groups = tuple(
            group.group_id for group in self._directory.groups.values() if group.topic is handle
        )
        infos = gather(ref.call(PartitionActor.info) for ref in handle.partitions)
        return infos.map(lambda found: TopicInfo(topic, handle.config, tuple(found), groups))

    # Publishing

    def publish(self, topic: TopicHandle, batch: Batch) -> StoredMessage:
        """Route one message; the proxy makes the arguments of a topic's name and a `Message`."""
        return self._forward(
            topic.partitions[self._router.route(topic, batch)[0]], PartitionActor.append_one, batch
        )

    def publish_many(
        self, topic: TopicHandle, batch: Batch
    ) -> list[StoredMessage] | Promise[list[StoredMessage]]:
        """Route a batch: one message to each partition it touches."""
        if not batch.messages:
            return []
        parts = batch.split(self._router.route(topic, batch))
        if len(parts) == 1:
            partition = next(iter(parts))
            return self._forward(topic.partitions[partition], PartitionActor.append, batch)
        places = [chosen for chosen, _ in parts.values()]
        stored = gather(
            topic.partitions[partition].call(PartitionActor.append, part)
            for partition, (_, part) in parts.items()
        )
        return stored.map(partial(in_order, places))

    def collect(self, sender: Sender, entries: list[Any]) -> None:
        """Publish what a producer has sent; each message succeeds or fails by itself."""
        for parcel in sender.take(entries):
            parcel.publish(self._router)

    def store_dead_letter(
        self, topic: TopicHandle, partition: int, batch: Batch
    ) -> list[StoredMessage]:
        """Store dead letters of a partition, in the same partition of its dead-letter topic.

        The dead-letter topic is created if there is none.
        """
        self._directory.check_current(topic)
        name = dead_letter_topic(topic.name)
        handle = self._directory.topics.get(name)
        if handle is None:
            handle = self._start_topic(name, topic.config.for_dead_letters())
        self._router.batches += 1
        # One that outlived a topic of this name may have another number of partitions.
        target = handle.partitions[partition % len(handle.partitions)]
        return self._forward(target, PartitionActor.append, batch)

    def batches_routed(self) -> int:
        """How many batches were routed so far; what was sent before this call is among them."""
        return self._router.batches

    # Groups

    def create_consumer_group(
        self,
        group_id: str,
        topic: str,
        delivery: str = Delivery.AT_LEAST_ONCE,
        **options: Unpack[GroupOptions],
    ) -> Promise[None]:
        """Create a group bound to a topic; the options are those of the facade.

        Raises:
            GroupExistsError: there is one of this name.
            UnknownTopicError: there is no such topic.
            InvalidArgumentError: a name or an option cannot be right.
        """
        config = group_config(delivery, **options)
        check_new_group_id(group_id, topic)
        handle = self._directory.topic(topic)
        if group_id in self._directory.groups or group_id in self._creating:
            raise GroupExistsError(
                f"there is a consumer group {group_id!r} already; use another name, or delete it"
            )
        bounds = gather(ref.call(PartitionActor.bounds) for ref in handle.partitions)
        created = self._after(bounds, self._start_group, group_id, handle, config)
        self._creating[group_id] = created
        created.when_done(lambda _: self._creating.pop(group_id, None))
        return created

    def delete_consumer_group(self, group_id: str) -> Promise[None]:
        """Delete a group; its waiting polls end with `UnknownGroupError`.

        Raises:
            UnknownGroupError: there is no such group.
        """
        if self._is_being_created(group_id):
            return self._when_created(group_id, CoordinatorActor.delete_consumer_group)
        return self._stop_group(self._directory.group(group_id)).map(lambda _: None)

    def list_consumer_groups(self) -> list[str]:
        """The names of all groups, in order of creation."""
        return list(self._directory.groups)

    def add_consumer(self, group_id: str, consumer_id: str) -> dict[str, list[int]]:
        """Let a consumer join; the group answers. See `ConsumerGroupActor.add_consumer`."""
        if self._is_being_created(group_id):
            return self._when_created(group_id, CoordinatorActor.add_consumer, consumer_id)
        ref = self._directory.group(group_id).ref
        return self._forward(ref, ConsumerGroupActor.add_consumer, consumer_id)

    def remove_consumer(self, group_id: str, consumer_id: str) -> dict[str, list[int]]:
        """Let a consumer leave; the group answers. See `ConsumerGroupActor.remove_consumer`."""
        if self._is_being_created(group_id):
            return self._when_created(group_id, CoordinatorActor.remove_consumer, consumer_id)
        ref = self._directory.group(group_id).ref
        return self._forward(ref, ConsumerGroupActor.remove_consumer, consumer_id)

    def _is_being_created(self, group_id: object) -> bool:
        return isinstance(group_id, str) and group_id in self._creating

    def _when_created(
        self,
        group_id: str,
        method: Callable[Concatenate[CoordinatorActor, str, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do this once the group is created: un-awaited calls keep their order."""
        ref, reply, call = self._ref, self._reply, Call(method, (group_id, *args), kwargs)
        self._creating[group_id].when_done(lambda _: ref.deliver(call, reply))
        return cast("T", FORWARDED)

    # Life

    def shut_down(self, why: Callable[[], DMQError]) -> Promise[dict[str, int]]:
        """Stop all groups, all partitions, and this actor; answers what is in flight by group."""
        groups, topics = self._directory.groups, self._directory.topics
        stopped = [self._stop_actor(group.ref, why) for group in groups.values()]
        stopped += [
            self._stop_actor(ref, why) for topic in topics.values() for ref in topic.partitions
        ]
        self._end(why)  # at once: what waits in the mailbox must start nothing new
        return gather([*stopped, *self._stopping]).map(
            lambda counts: dict(zip(groups, counts, strict=False))
        )

    def _start_topic(self, topic: str, config: TopicConfig) -> TopicHandle:
        partitions = tuple(
            PartitionActor.spawn(PartitionLog(topic, number, config), self._clock, self._dispatcher)
            for number in range(config.num_partitions)
        )
        handle = TopicHandle(topic, config, partitions)
        self._router.add(topic, config)
        self._directory.topics = {**self._directory.topics, topic: handle}
        log.info(events.TOPIC_CREATED, topic=topic, partitions=config.num_partitions)
        return handle

    def _start_group(
        self, bounds: list[Bounds], group_id: str, topic: TopicHandle, config: GroupConfig
    ) -> None:
        self._directory.check_current(topic)
        latest = config.start_from is StartFrom.LATEST
        start = [end if latest else base for base, end in bounds]
        self._incarnations += 1
        state = GroupState(group_id, topic.name, start, config, self._incarnations)
        store = partial(self._ref.call, CoordinatorActor.store_dead_letter, topic)
        ref = ConsumerGroupActor.spawn(
            state, topic.partitions, store, self._clock, self._dispatcher
        )
        handle = GroupHandle(group_id, topic, config, state.incarnation, ref)
        self._directory.groups = {**self._directory.groups, group_id: handle}
        log.info(
            events.GROUP_CREATED, group=group_id, topic=topic.name, delivery=str(config.delivery)
        )

    def _stop_group(self, group: GroupHandle) -> Promise[Any]:
        self._directory.groups = {
            name: other for name, other in self._directory.groups.items() if other is not group
        }
        log.info(events.GROUP_DELETED, group=group.group_id, topic=group.topic.name)
        return self._stop_actor(group.ref, partial(unknown_group, group.group_id))

    def _stop_actor(self, ref: BrokerRef[Any], why: Callable[[], DMQError]) -> Promise[Any]:
        stopped: Promise[Any] = Promise()
        ref.deliver(Stop(why), stopped)
        self._stopping.add(stopped)
        self._then(stopped, self._stopping.discard)
        return stopped
