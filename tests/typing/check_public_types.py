"""Checked by mypy, never run: what users' type checkers see."""

from __future__ import annotations

import asyncio
from typing import assert_type

from dmq_actors import (
    AckResult,
    ActorFailure,
    CloseReport,
    DeliveredMessage,
    GroupInfo,
    Message,
    MessageQueue,
    Producer,
    Promise,
    SendFuture,
    StoredMessage,
    TopicInfo,
)
from dmq_actors.testing import (
    FaultRule,
    Faults,
    ManualClock,
    SeededScheduler,
    expire_member,
    force_rebalance,
)


def facade(mq: MessageQueue) -> None:
    with mq as entered:
        assert_type(entered, MessageQueue)
    assert_type(mq.create_topic("t", 3, retention_count=5), TopicInfo)
    assert_type(mq.get_topic_info("t"), TopicInfo)
    assert_type(mq.list_topics(), list[str])
    assert_type(mq.publish("t", Message("v", key="k", headers={"a": b"1"})), StoredMessage)
    assert_type(mq.publish_many("t", [Message(1), Message(2)]), list[StoredMessage])
    assert_type(mq.list_consumer_groups(), list[str])
    assert_type(mq.get_group_info("g"), GroupInfo)
    assert_type(mq.add_consumer("g", "c"), dict[str, list[int]])
    assert_type(mq.remove_consumer("g", "c"), dict[str, list[int]])
    polled = mq.poll("g", "c", max_messages=10, timeout=None)
    assert_type(polled, list[DeliveredMessage])
    assert_type(mq.commit("g", "c"), dict[int, int])
    assert_type(mq.commit("g", "c", {0: 1}), dict[int, int])
    assert_type(mq.seek("g", 0, -1), int)
    assert_type(mq.acknowledge("g", polled[0], success=False, error=ValueError()), AckResult)
    assert_type(mq.get_consumer_lag("g"), dict[int, int])
    assert_type(mq.redrive("t", repair=lambda message: message), list[StoredMessage])
    assert_type(mq.take_actor_failures(), list[ActorFailure])
    assert_type(mq.close(timeout=1.0), CloseReport)
    assert_type(mq.close().actor_failures, tuple[ActorFailure, ...])


def producer(mq: MessageQueue) -> None:
    with mq.producer("t", linger=0.1) as sender:
        assert_type(sender, Producer)
        future = sender.send(Message(1), partition=0)
        assert_type(future, SendFuture)
        assert_type(future.result(timeout=1.0), StoredMessage)
        assert_type(future.exception(), BaseException | None)
        assert_type(sender.close(timeout=1.0), int)


def mistakes(mq: MessageQueue) -> None:
    mq.publish("t", "no message")  # type: ignore[arg-type]  # a value is not a Message
    mq.create_topic("t", 3, 5)  # type: ignore[call-arg]  # options are keywords
    mq.poll("g")  # type: ignore[call-arg]  # who polls?
    mq.acknowledge("g", mq.publish("t", Message(1)))  # type: ignore[arg-type]  # not polled
    mq.commit("g", "c", [0])  # type: ignore[arg-type]  # offsets are a mapping


def proxies(mq: MessageQueue) -> None:
    coordinator = mq.coordinator
    assert_type(coordinator.publish("t", Message(1)), Promise[StoredMessage])
    assert_type(coordinator.publish_many("t", [Message(1)]), Promise[list[StoredMessage]])
    assert_type(coordinator.create_topic("t", 2, retention_count=1), Promise[TopicInfo])
    assert_type(coordinator.delete_topic("t"), Promise[None])
    assert_type(coordinator.list_topics(), Promise[list[str]])
    assert_type(coordinator.get_topic_info("t"), Promise[TopicInfo])
    assert_type(coordinator.create_consumer_group("g", "t", max_failures=1), Promise[None])
    assert_type(coordinator.add_consumer("g", "c"), Promise[dict[str, list[int]]])
    group = mq.group_actor("g")
    assert_type(group.poll("c", 10, timeout=1.0), Promise[list[DeliveredMessage]])
    assert_type(group.acknowledge(group.poll("c").get()[0]), Promise[AckResult])
    assert_type(group.commit("c"), Promise[dict[int, int]])
    assert_type(group.seek(0, 5), Promise[int])
    assert_type(group.lag(), Promise[dict[int, int]])
    assert_type(group.info(), Promise[GroupInfo])
    group.commit.defer("c")
    partition = mq.partition_actor("t", 0)
    assert_type(partition.read(0, 10), Promise[list[StoredMessage]])
    coordinator.create_topic("t", retention_counts=1)  # type: ignore[call-arg]  # a typo
    group.poll()  # type: ignore[call-arg]  # who polls?


async def awaited(mq: MessageQueue) -> None:
    async with mq.producer() as sender:
        assert_type(await sender.send(Message(1), topic="t"), StoredMessage)
        assert_type(await asyncio.wrap_future(sender.send(Message(1), topic="t")), StoredMessage)
    assert_type(await mq.coordinator.publish("t", Message(1)), StoredMessage)
    assert_type(await mq.group_actor("g").poll("c", timeout=5.0), list[DeliveredMessage])


def test_kit(clock: ManualClock, faults: Faults) -> None:
    mq = MessageQueue(scheduler=SeededScheduler(7), clock=clock, faults=faults)
    rule = faults.fail("group-*", "poll", error=OSError())
    assert_type(rule, FaultRule)
    assert_type(rule.hits, int)
    assert_type(faults.delay("*", "*", seconds=1, times=None), FaultRule)
    assert_type(clock.advance_to_next_timer(), bool)
    assert_type(expire_member(mq, "g", "c"), dict[str, list[int]])
    assert_type(force_rebalance(mq, "g"), dict[str, list[int]])
    faults.fail("group-*", "poll")  # type: ignore[call-arg]  # with which error?


def immutability(message: Message) -> None:
    message.value = 2  # type: ignore[misc]  # frozen
