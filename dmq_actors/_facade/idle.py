"""Waiting until all groups are idle, and saying who is not."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from dmq_actors._actors.coordinator import CoordinatorActor
from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._core.arguments import check_seconds
from dmq_actors._runtime.promise import Promise, gather
from dmq_actors.errors import (
    BrokerTimeoutError,
    DMQError,
    HandlerFailedError,
    InvalidTypeError,
    NotIdleError,
)

if TYPE_CHECKING:
    from dmq_actors._actors.broker import Broker
    from dmq_actors._actors.directory import GroupHandle
    from dmq_actors.info import GroupInfo

_LOOK_AGAIN = 0.25
"""Seconds. Retention can complete something without any message to the group."""

_LAST_WORDS = 1.0


def check_expected(expected: Any) -> tuple[type[BaseException], ...]:
    """One exception class, or a tuple of them."""
    kinds = expected if isinstance(expected, tuple) else (expected,)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise InvalidTypeError(
                f"expected is an exception class or a tuple of them, found {kind!r}"
            )
    return kinds


def wait_idle(
    broker: Broker,
    topic: str | None,
    group: str | None,
    timeout: float,
    expected: tuple[type[BaseException], ...],
) -> None:
    """See `MessageQueue.wait_idle`."""
    deadline = time.monotonic() + check_seconds("timeout", timeout)
    broker.check_open()
    if topic is not None:
        broker.directory.topic(topic)
    if group is not None:
        broker.directory.group(group)
    while True:
        broker.check_open()
        groups = _selected(broker, topic, group)
        before = _routed(broker)
        if not _wait_for(broker, groups, deadline, expected):
            raise _not_idle(groups, timeout)
        # What went on in one group while another was looked at has published something.
        if _routed(broker) == before and len(_selected(broker, topic, group)) == len(groups):
            return


def _selected(broker: Broker, topic: str | None, group: str | None) -> list[GroupHandle]:
    return [
        handle
        for handle in list(broker.directory.groups.values())
        if topic in (None, handle.topic.name) and group in (None, handle.group_id)
    ]


def _routed(broker: Broker) -> int:
    return broker.coordinator.call(CoordinatorActor.batches_routed).get(timeout=_LAST_WORDS * 30)


def _wait_for(
    broker: Broker,
    groups: list[GroupHandle],
    deadline: float,
    expected: tuple[type[BaseException], ...],
) -> bool:
    idle = gather(handle.ref.call(ConsumerGroupActor.when_idle) for handle in groups)
    names = {handle.group_id for handle in groups}
    while True:
        failed = broker.failures.next()
        _raise_unexpected(broker, names, expected)
        news: Promise[Any] = Promise()
        for promise in (idle, failed):
            promise.when_done(partial(_tell, news))
        left = deadline - time.monotonic()
        try:
            news.get(timeout=max(min(left, _LOOK_AGAIN), 0.0))
        except BrokerTimeoutError:
            if left <= 0:
                return False
            for handle in groups:  # any message makes it look again
                handle.ref.send(ConsumerGroupActor.lag)
        _raise_unexpected(broker, names, expected)
        if idle.done():
            try:
                idle.get(timeout=0)
            except DMQError:
                broker.check_open()  # a group was deleted: its work is nobody's any more
            return True


def _tell(news: Promise[Any], _promise: object) -> None:
    news.resolve()


def _raise_unexpected(
    broker: Broker, group_ids: set[str], expected: tuple[type[BaseException], ...]
) -> None:
    for failure in broker.failures.take(lambda failure: failure.group_id in group_ids):
        if not isinstance(failure.error, expected):
            message = failure.message
            raise HandlerFailedError(
                f"a handler of group {failure.group_id!r} raised {failure.error!r} at offset "
                f"{message.offset} of partition {message.partition} of topic {message.topic!r} "
                f"(attempt {message.delivery_attempt}); if that is what it should do, say "
                f"expected={type(failure.error).__name__}"
            ) from failure.error


def _not_idle(groups: list[GroupHandle], timeout: float) -> NotIdleError:
    found: list[str] = []
    for handle in groups:
        try:
            info = handle.ref.call(ConsumerGroupActor.info).get(timeout=_LAST_WORDS)
        except DMQError as error:
            found.append(f"group {handle.group_id!r} does not answer: {error}")
        else:
            found += _describe(info)
    details = "; ".join(found) or "all is completed, and a worker is still at work"
    return NotIdleError(f"not idle within {timeout:g} s: {details}")


def _describe(info: GroupInfo) -> list[str]:
    behind = [
        f"partition {p.partition}: lag {p.lag}, {p.in_flight} in flight, {p.retrying} retrying"
        for p in info.partitions
        if p.lag
    ]
    if not behind:
        return []
    members = f"{len(info.members)} members" if info.members else "no members"
    head = f"group {info.group_id!r} ({members}, {info.dead_lettered_total} dead letters)"
    return [f"{head}: {', '.join(behind)}"]
