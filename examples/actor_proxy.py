"""The actors themselves: every call returns a `Promise` at once.

`MessageQueue` is a thin coat over three kinds of actors, and this program uses nothing but them:

* ``mq.coordinator``: topics, groups, members, publishing;
* ``mq.group_actor(group_id)``: polls, commits, acknowledgements, offsets of one group;
* ``mq.partition_actor(topic, partition)``: a look into one log.

Three rules carry all of it:

* An ask returns a promise and does not wait. `Promise.get` waits, so does ``await``.
* An actor handles what one thread sends it in the order it was sent.
* What goes wrong is in the promise: it is raised where the answer is read.

Run it with ``python examples/actor_proxy.py``.
"""

import asyncio
import queue
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from dmq_actors import (
    DeliveredMessage,
    Message,
    MessageQueue,
    Promise,
    UnknownPartitionError,
    UnknownTopicError,
)

TOPIC, PARTITIONS = "readings", 4
ALARMS, ARCHIVE = "alarms", "archive"
WAIT = 10.0
"""Seconds. A healthy broker answers in microseconds; waiting without a bound hides the sick one."""


def create(mq: MessageQueue) -> None:
    """A topic and two groups."""
    mq.coordinator.create_topic(TOPIC, PARTITIONS).get(timeout=WAIT)
    # Both asks are sent before the first answer is read.
    created = [mq.coordinator.create_consumer_group(group, TOPIC) for group in (ALARMS, ARCHIVE)]
    for promise in created:
        promise.get(timeout=WAIT)
    assignments = mq.coordinator.add_consumer(ALARMS, "siren").get(timeout=WAIT)
    assert assignments == {"siren": [0, 1, 2, 3]}


def poll_from_another_thread(mq: MessageQueue) -> DeliveredMessage:
    """A long poll: the thread waits in `get`, the actor does not wait at all."""

    def first_alarm() -> DeliveredMessage:
        messages = mq.group_actor(ALARMS).poll("siren", 1, timeout=WAIT).get(timeout=2 * WAIT)
        return messages[0]

    with ThreadPoolExecutor(1) as pool:
        alarm = pool.submit(first_alarm)
        mq.coordinator.publish(TOPIC, Message("smoke", key="kitchen")).get(timeout=WAIT)
        return alarm.result()


def commit_without_an_answer(mq: MessageQueue) -> None:
    """`defer` is a tell: there is no promise, and an error would only be logged."""
    group = mq.group_actor(ALARMS)
    group.commit.defer("siren")
    # The same thread asks the same actor, so the commit was handled before.
    lag = group.lag().get(timeout=WAIT)
    assert sum(lag.values()) == 0


def publish_without_waiting(mq: MessageQueue, count: int) -> None:
    """Send all, then read all answers: one wait instead of `count` of them."""
    promises = [
        mq.coordinator.publish(TOPIC, Message(number, key=f"sensor-{number % 10}"))
        for number in range(count)
    ]
    stored = [promise.get(timeout=WAIT) for promise in promises]
    assert [message.value for message in stored] == list(range(count))

    # A partition can be looked at without a group; that moves nothing.
    last = stored[-1]
    partition = mq.partition_actor(TOPIC, last.partition)
    assert partition.read(last.offset).get(timeout=WAIT) == [last]


def poll_with_a_callback(mq: MessageQueue) -> int:
    """A callback instead of a waiting thread; returns how many messages came."""
    answered: queue.SimpleQueue[Promise[list[DeliveredMessage]]] = queue.SimpleQueue()
    promise = mq.group_actor(ALARMS).poll("siren", 100, timeout=WAIT)
    # The callback may run in an actor's thread, where nobody may wait: it only passes on.
    promise.add_done_callback(answered.put)
    messages = answered.get(timeout=2 * WAIT).get(timeout=0)
    return len(messages)


def errors_are_in_the_promise(mq: MessageQueue) -> list[str]:
    """Neither call raises; reading the answer does."""
    publishing = mq.coordinator.publish("raedings", Message("a typo"))
    seeking = mq.group_actor(ALARMS).seek(PARTITIONS, 0)
    messages = []
    try:
        publishing.get(timeout=WAIT)
    except UnknownTopicError as error:
        messages.append(str(error))
    try:
        seeking.get(timeout=WAIT)
    except UnknownPartitionError as error:
        messages.append(str(error))
    assert len(messages) == 2
    return messages


async def work_in_an_event_loop(mq: MessageQueue) -> int:
    """Many promises awaited at the same time, with no thread for any of them.

    Returns how many messages were published and received.
    """
    topic, members = "ticks", [f"task-{number}" for number in range(PARTITIONS)]
    await mq.coordinator.create_topic(topic, PARTITIONS)
    await mq.coordinator.create_consumer_group("clocks", topic)
    await asyncio.gather(*(mq.coordinator.add_consumer("clocks", member) for member in members))

    # The polls begin before there is anything to read; the publishes answer them.
    group = mq.group_actor("clocks")
    polls = [group.poll(member, timeout=WAIT) for member in members]
    publishes = [
        mq.coordinator.publish(topic, Message(number), partition=number)
        for number in range(PARTITIONS)
    ]
    delivered, stored = await asyncio.gather(asyncio.gather(*polls), asyncio.gather(*publishes))
    received = [message for messages in delivered for message in messages]
    assert [message.value for message in received] == [message.value for message in stored]

    await asyncio.gather(*(group.acknowledge(message) for message in received))
    assert sum((await group.lag()).values()) == 0
    return len(received)


async def cancel_a_poll(mq: MessageQueue) -> None:
    """A cancelled poll takes nothing with it: the next one gets the message."""
    group = mq.group_actor("clocks")
    poll = group.poll("task-0", timeout=None)
    await group.lag()  # asked after the poll: now that it is answered, the poll waits at the actor
    with suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await poll
    stored = await mq.coordinator.publish("ticks", Message("late"), partition=0)
    [message] = await group.poll("task-0", timeout=WAIT)
    assert (message.offset, message.delivery_attempt) == (stored.offset, 1)


async def event_loop(mq: MessageQueue) -> int:
    """The asyncio half."""
    ticks = await work_in_an_event_loop(mq)
    await cancel_a_poll(mq)
    return ticks


def main() -> None:
    """First with threads, then with an event loop."""
    with MessageQueue() as mq:
        create(mq)
        alarm = poll_from_another_thread(mq)
        commit_without_an_answer(mq)
        publish_without_waiting(mq, 1_000)
        polled = poll_with_a_callback(mq)
        errors = errors_are_in_the_promise(mq)
        ticks = asyncio.run(event_loop(mq))

    assert alarm.value == "smoke"
    assert 0 < polled <= 100
    assert ticks == PARTITIONS
    print(f"alarm: {alarm.value} in the {alarm.key!s}; {polled} readings came by callback")
    print(*(f"in a promise: {error}" for error in errors), sep="\n")
    print(f"{ticks} polls and {ticks} publishes awaited together")


if __name__ == "__main__":
    main()
