"""Typed proxies: the actors' own methods, called as pykka calls them.

At run time these are pykka's proxies: each attribute is a `pykka.CallableProxy`, a call returns a
`Promise` at once, ``.defer(…)`` sends without asking for an answer. Publishing and acknowledging
are plain methods: they prepare the message in the caller's thread first, because copying a value
and a partitioner of the user's own are code that must not run in an actor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import pykka

from dmq_actors._actors.coordinator import CoordinatorActor
from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._actors.sent import hand_over_before
from dmq_actors._core.arguments import check_bool, check_delivered
from dmq_actors._core.batch import prepare
from dmq_actors._core.values import copy_in
from dmq_actors._runtime.promise import Promise, gather
from dmq_actors.errors import DMQError, InvalidTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykka.typing import ActorMemberMixin

    from dmq_actors._actors.directory import Directory, GroupHandle
    from dmq_actors._actors.partition import PartitionActor
    from dmq_actors._runtime.ref import BrokerRef
    from dmq_actors.config import AckResult
    from dmq_actors.messages import DeliveredMessage, Message, StoredMessage

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", bound=pykka.Actor)


TURN_MESSAGES = 5_000
"""A larger batch goes to the coordinator in several messages, so that others get their turn."""


class ProxyMethod(Protocol[P, T]):
    """How a method of an actor looks on its proxy."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Promise[T]:
        """Ask: a promise of the answer, at once."""
        ...

    def defer(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Tell: no answer wanted; an error is only logged."""
        ...


@overload
def proxy_method(method: Callable[Concatenate[A, P], Promise[T]]) -> ProxyMethod[P, T]: ...
@overload
def proxy_method(method: Callable[Concatenate[A, P], T | Promise[T]]) -> ProxyMethod[P, T]: ...
@overload
def proxy_method(method: Callable[Concatenate[A, P], T]) -> ProxyMethod[P, T]: ...
def proxy_method(method: Callable[..., Any]) -> Any:
    """As `pykka.typing.proxy_method`, for methods that may answer with a promise."""
    return method


class CoordinatorProxy(pykka.ActorProxy[CoordinatorActor]):
    """`CoordinatorActor` by proxy: topics, groups, members, publishing."""

    def __init__(self, actor_ref: BrokerRef[CoordinatorActor], directory: Directory) -> None:
        super().__init__(actor_ref=actor_ref)
        self._directory = directory

    def publish(
        self, topic: str, message: Message, *, partition: int | None = None
    ) -> Promise[StoredMessage]:
        """Publish one message; bad input fails the promise. See `MessageQueue.publish`."""
        try:
            return route_one(self._broker_ref, self._directory, topic, message, partition)
        except DMQError as error:
            return _failed(error)

    def publish_many(self, topic: str, messages: Iterable[Message]) -> Promise[list[StoredMessage]]:
        """Publish a batch; bad input fails the promise. See `MessageQueue.publish_many`."""
        try:
            return route_many(self._broker_ref, self._directory, topic, messages)
        except DMQError as error:
            return _failed(error)

    @property
    def _broker_ref(self) -> BrokerRef[CoordinatorActor]:
        return cast("BrokerRef[CoordinatorActor]", self.actor_ref)

    if TYPE_CHECKING:
        create_topic = proxy_method(CoordinatorActor.create_topic)
        delete_topic = proxy_method(CoordinatorActor.delete_topic)
        list_topics = proxy_method(CoordinatorActor.list_topics)
        get_topic_info = proxy_method(CoordinatorActor.get_topic_info)
        create_consumer_group = proxy_method(CoordinatorActor.create_consumer_group)
        delete_consumer_group = proxy_method(CoordinatorActor.delete_consumer_group)
        list_consumer_groups = proxy_method(CoordinatorActor.list_consumer_groups)
        add_consumer = proxy_method(CoordinatorActor.add_consumer)
        remove_consumer = proxy_method(CoordinatorActor.remove_consumer)


class GroupProxy(pykka.ActorProxy[ConsumerGroupActor]):
    """`ConsumerGroupActor` by proxy: members, polls, commits, offsets."""

    def __init__(self, handle: GroupHandle) -> None:
        try:
            super().__init__(actor_ref=handle.ref)
        except pykka.ActorDeadError:  # deleted since it was looked up
            raise handle.ref.why_gone() from None
        self._handle = handle

    def acknowledge(
        self,
        message: DeliveredMessage,
        success: bool = True,  # noqa: FBT001, FBT002  # fixed by the original contract
        *,
        error: BaseException | str | None = None,
    ) -> Promise[AckResult]:
        """Complete a message, or say that it failed. See `MessageQueue.acknowledge`."""
        try:
            return acknowledge(self._handle, message, success, error)
        except DMQError as wrong:
            return _failed(wrong)

    if TYPE_CHECKING:
        add_consumer = proxy_method(ConsumerGroupActor.add_consumer)
        remove_consumer = proxy_method(ConsumerGroupActor.remove_consumer)
        poll = proxy_method(ConsumerGroupActor.poll)
        commit = proxy_method(ConsumerGroupActor.commit)
        seek = proxy_method(ConsumerGroupActor.seek)
        lag = proxy_method(ConsumerGroupActor.lag)
        info = proxy_method(ConsumerGroupActor.info)
        expire_member = proxy_method(ConsumerGroupActor.expire_member)
        force_rebalance = proxy_method(ConsumerGroupActor.force_rebalance)


if TYPE_CHECKING:

    class PartitionProxy(ActorMemberMixin, pykka.ActorProxy[PartitionActor]):
        """`PartitionActor` by proxy: look at one partition."""

        read = proxy_method(PartitionActor.read)
        bounds = proxy_method(PartitionActor.bounds)
        info = proxy_method(PartitionActor.info)

else:
    PartitionProxy = pykka.ActorProxy


def route_one(
    coordinator: BrokerRef[CoordinatorActor],
    directory: Directory,
    topic: str,
    message: Message,
    partition: int | None,
) -> Promise[StoredMessage]:
    """Prepare a message here and hand it to the coordinator; raises what is wrong with it."""
    handle = directory.topic(topic)
    batch = prepare(handle.config, (message,), partition)
    hand_over_before(topic)
    return coordinator.call(CoordinatorActor.publish, handle, batch)


def route_many(
    coordinator: BrokerRef[CoordinatorActor],
    directory: Directory,
    topic: str,
    messages: Iterable[Message],
) -> Promise[list[StoredMessage]]:
    """As `route_one`, for a batch; all of it or nothing passes."""
    handle = directory.topic(topic)
    batch = prepare(handle.config, messages)
    hand_over_before(topic)
    if len(batch.messages) <= TURN_MESSAGES:
        return coordinator.call(CoordinatorActor.publish_many, handle, batch)
    stored = [
        coordinator.call(CoordinatorActor.publish_many, handle, part)
        for part in batch.chunks(TURN_MESSAGES)
    ]
    return gather(stored).map(lambda parts: [message for part in parts for message in part])


def acknowledge(
    group: GroupHandle,
    message: DeliveredMessage,
    success: bool,  # noqa: FBT001  # handed on
    error: BaseException | str | None,
) -> Promise[AckResult]:
    """Prepare an acknowledgement here and hand it to the group; raises what is wrong with it."""
    text = _describe(error)
    check_delivered(message)
    if not check_bool("success", success) and not group.topic.config.share_values:
        # The dead letter is made of this one should retention take the original.
        message = message.with_value(copy_in(message.value))
    return group.ref.call(ConsumerGroupActor.acknowledge, message, success, text)


def _describe(error: object) -> str:
    """A text for a header; made here, because an exception's ``__str__`` is the user's code."""
    if error is None or isinstance(error, str):
        return error or ""
    if not isinstance(error, BaseException):
        raise InvalidTypeError(
            f"error is an exception, a text or None, found {type(error).__name__}"
        )
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # the user's __str__ may raise anything
        return type(error).__name__


def _failed(error: DMQError) -> Promise[Any]:
    promise: Promise[Any] = Promise()
    promise.fail(error)
    return promise
