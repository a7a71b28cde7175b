"""Seeks while others poll, polls of one consumer by several threads, polls that are given up."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from stress.harness import WATCHDOG, Team, broker_log

from dmq_actors import BEGINNING, END, Message, MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stress.harness import Rounds

    from dmq_actors import DeliveredMessage, Promise

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures("hectic")]

BOTH = pytest.mark.parametrize("threads", [1, 4])


@pytest.fixture
def broker(threads: int) -> Iterator[MessageQueue]:
    with broker_log(), MessageQueue(call_timeout=WATCHDOG, actor_threads=threads) as mq:
        yield mq


def group_on_a_topic(
    mq: MessageQueue, numbers: Iterator[int], delivery: str, partitions: int = 1
) -> tuple[str, str]:
    number = next(numbers)
    topic, group = f"t{number}", f"g{number}"
    mq.create_topic(topic, partitions)
    mq.create_consumer_group(group, topic, delivery)
    mq.add_consumer(group, "c")
    return topic, group


# Seeks


@BOTH
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_the_first_message_after_a_seek_is_its_target(broker, delivery, rounds: Rounds):
    """One thread polls all the time, another publishes; after a seek, the polls go on from there.

    Polls that overlap with the seek may have been answered before it or after it. So the messages
    from there on must be some of before, then the target and what follows it, without a gap; and
    every poll that begins after the seek returned belongs to the second part.
    """
    mq, numbers = broker, itertools.count()

    def one_round(rng: random.Random) -> None:
        topic, group = group_on_a_topic(mq, numbers, delivery)
        mq.publish_many(topic, [Message(number) for number in range(20)])
        order = itertools.count()
        polls: list[tuple[int, int, list[int]]] = []
        polled, done = threading.Semaphore(0), threading.Event()

        def publish() -> None:
            for number in range(20):
                mq.publish(topic, Message(number))

        def poll() -> None:
            while not done.is_set():
                began = next(order)
                messages = mq.poll(group, "c", rng.choice([1, 3, 50]), 0.005)
                polls.append((began, next(order), [message.offset for message in messages]))
                polled.release()

        def seek(team: Team) -> None:
            for _ in range(3):
                called = next(order)
                target = mq.seek(group, 0, rng.choice([BEGINNING, 7, rng.randint(0, 19)]))
                returned = next(order)
                while team.still() and not (polls and polls[-1][0] > returned):
                    polled.acquire(timeout=0.1)
                check_seek(list(polls), called, returned, target)
            done.set()

        with Team() as team:
            team.start(poll)
            team.start(publish)
            team.start(seek, team)
        mq.delete_topic(topic)

    rounds.play(one_round, cases=4)


def check_seek(
    polls: list[tuple[int, int, list[int]]], called: int, returned: int, target: int
) -> None:
    either = [
        at for began, ended, got in polls if began < returned and ended > called for at in got
    ]
    after = [offset for began, _, got in polls if began > returned for offset in got]
    read = either + after
    assert read, "messages there are, and nobody got one"
    fits = [
        start
        for start in range(len(either) + 1)
        if read[start:] == list(range(target, target + len(read) - start))
    ]
    assert fits, f"sought {target}, got {either} around it and {after} after it"


@BOTH
def test_a_seek_to_the_end_still_hears_of_the_next_message(broker, rounds: Rounds):
    """Publishes, polls and seeks crossed each other; the next message must wake the next poll."""
    mq, numbers = broker, itertools.count()

    def one_round(rng: random.Random) -> None:
        topic, group = group_on_a_topic(mq, numbers, "at_least_once")

        def publish() -> None:
            for number in range(8):
                mq.publish(topic, Message(number))

        def poll() -> None:
            for _ in range(12):
                mq.poll(group, "c", rng.choice([1, 2]), 0.0)

        with Team() as team:
            team.start(publish)
            team.start(publish)
            team.start(poll)
        assert mq.seek(group, 0, END) == 16
        polled = mq.group_actor(group).poll("c", 1, WATCHDOG)
        mq.publish(topic, Message("next"))
        assert [message.value for message in polled.get(timeout=WATCHDOG / 2)] == ["next"]
        mq.delete_topic(topic)

    rounds.play(one_round, cases=2)


# Several threads, one consumer


@BOTH
@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once", "exactly_once"])
def test_threads_that_poll_as_one_consumer_never_get_the_same_message(
    broker, delivery, rounds: Rounds
):
    mq, numbers = broker, itertools.count()

    def one_round(rng: random.Random) -> None:
        topic, group = group_on_a_topic(mq, numbers, delivery, rng.randint(1, 3))
        got: list[DeliveredMessage] = []

        def publish() -> None:
            for _ in range(5):
                mq.publish_many(topic, [Message(None) for _ in range(10)])

        def poll(team: Team) -> None:
            while len(got) < 50 and team.still():
                got.extend(mq.poll(group, "c", rng.choice([1, 4, 30]), rng.choice([0.0, 0.01])))

        with Team() as team:
            for _ in range(3):
                team.start(poll, team)
            team.start(publish)
        check_each_once(got, 50)
        mq.commit(group, "c")
        assert mq.get_group_info(group).lag == 0
        mq.delete_topic(topic)

    rounds.play(one_round, cases=6)


def check_each_once(got: list[DeliveredMessage], count: int) -> None:
    times = Counter((message.partition, message.offset) for message in got)
    doubled = {place: number for place, number in times.items() if number > 1}
    assert not doubled, f"delivered more than once: {doubled}"
    assert len(times) == count, f"{count - len(times)} were lost"
    attempts = {message.delivery_attempt for message in got}
    assert attempts == {1}, f"what nobody read counted as an attempt: {attempts}"


# Polls that are given up


@BOTH
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_polls_that_are_abandoned_lose_nothing_and_double_nothing(broker, delivery, rounds: Rounds):
    mq, numbers = broker, itertools.count()

    def one_round(rng: random.Random) -> None:
        topic, group = group_on_a_topic(mq, numbers, delivery, rng.randint(1, 3))
        got: list[DeliveredMessage] = []
        proxy = mq.group_actor(group)

        def publish() -> None:
            for _ in range(10):
                mq.publish_many(topic, [Message(None, key="k") for _ in range(rng.randint(1, 5))])

        def poll(own: random.Random) -> None:
            for _ in range(15):
                promise = proxy.poll("c", own.choice([1, 4, 30]), own.choice([0.0, 0.01, None]))
                if own.random() < 0.4:
                    spin_until(promise, own.randint(0, 50))
                    got.extend(promise.get(timeout=WATCHDOG) if promise.done() else [])
                promise.abandon()  # which does nothing to one that was read

        with Team() as team:
            for _ in range(2):
                team.start(poll, random.Random(rng.random()))
            team.start(publish)
        finish(mq, topic, group, got)

    rounds.play(one_round, cases=4)


def spin_until(promise: Promise[Any], looks: int) -> None:
    for _ in range(looks):
        if promise.done():
            return


def finish(mq: MessageQueue, topic: str, group: str, got: list[DeliveredMessage]) -> None:
    """Read what is left: together with what was read before, everything, once."""
    count = mq.get_topic_info(topic).published_total
    while len(got) < count:
        rest = mq.poll(group, "c", 100, WATCHDOG)
        assert rest, f"{count - len(got)} were lost"
        got.extend(rest)
    got.extend(mq.poll(group, "c", 100, 0.0))
    check_each_once(got, count)
    mq.commit(group, "c")
    info = mq.get_group_info(group)
    assert (info.lag, info.in_flight) == (0, 0)
    mq.delete_topic(topic)


@BOTH
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_tasks_that_are_cancelled_while_they_poll_lose_nothing_and_double_nothing(
    broker, delivery, rounds: Rounds
):
    mq, numbers = broker, itertools.count()

    def one_round(rng: random.Random) -> None:
        topic, group = group_on_a_topic(mq, numbers, delivery, rng.randint(1, 3))
        got: list[DeliveredMessage] = []
        proxy = mq.group_actor(group)

        def publish() -> None:
            for _ in range(10):
                mq.publish_many(topic, [Message(None, key="k") for _ in range(rng.randint(1, 5))])

        async def poll() -> None:
            # What follows the await is not interrupted, so what was read was read.
            got.extend(await proxy.poll("c", rng.choice([1, 4]), rng.choice([0.01, None])))

        async def poll_and_cancel() -> None:
            for _ in range(12):
                tasks = [asyncio.create_task(poll()) for _ in range(3)]
                for _ in range(rng.randint(0, 6)):
                    await asyncio.sleep(0)
                if rng.random() < 0.3:
                    await asyncio.wait(tasks, timeout=0.002)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        with Team() as team:
            team.start(publish)
            team.start(asyncio.run, poll_and_cancel())
        finish(mq, topic, group, got)

    rounds.play(one_round, cases=4)


@BOTH
def test_abandoned_polls_of_an_at_most_once_group_double_nothing(broker, rounds: Rounds):
    mq, numbers = broker, itertools.count()

    def one_round(rng: random.Random) -> None:
        topic, group = group_on_a_topic(mq, numbers, "at_most_once", 2)
        got: list[DeliveredMessage] = []
        proxy = mq.group_actor(group)

        def publish() -> None:
            for _ in range(10):
                mq.publish_many(topic, [Message(None) for _ in range(4)])

        def poll(own: random.Random) -> None:
            for _ in range(15):
                promise = proxy.poll("c", own.choice([1, 4]), 0.01)
                if own.random() < 0.5:
                    got.extend(promise.get(timeout=WATCHDOG))
                promise.abandon()

        with Team() as team:
            for _ in range(2):
                team.start(poll, random.Random(rng.random()))
            team.start(publish)
        while mq.get_group_info(group).lag:
            got.extend(mq.poll(group, "c", timeout=0.01))
        places = [(message.partition, message.offset) for message in got]
        assert len(places) == len(set(places)), "doubled"
        mq.delete_topic(topic)

    rounds.play(one_round, cases=2)
