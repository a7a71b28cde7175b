"""Replay: the log keeps what was read, so a view can be built again from it.

A group reads movements on bank accounts and keeps the balances. Then it goes back: to the beginning
to build the balances anew, to an offset to look at the latest movements again, and to the end to
skip what it does not want.

Careful when you come from Kafka: **here BEGINNING is -1 and END is -2; in Kafka's clients
OFFSET_BEGINNING is -2 and OFFSET_END is -1.** Use the names and the numbers never matter.

A seek moves the *whole group* on one partition. To replay without disturbing a group at work,
create a second group instead: it starts at the beginning of the log and has offsets of its own.

Run it with ``python examples/replay_with_seek.py``.
"""

from collections import Counter
from collections.abc import Iterable

from dmq_actors import BEGINNING, END, DeliveredMessage, Message, MessageQueue

TOPIC, PARTITIONS = "movements", 2
GROUP, CONSUMER = "balances", "bookkeeper"
MOVEMENTS = [("alice", 100), ("bob", 50), ("alice", -30), ("carol", 70), ("bob", 5), ("alice", 8)]


def publish(mq: MessageQueue, movements: Iterable[tuple[str, int]]) -> None:
    """An account is a key, so its movements stay in order."""
    mq.publish_many(TOPIC, [Message(amount, key=account) for account, amount in movements])


def read_all(mq: MessageQueue) -> list[DeliveredMessage]:
    """Read to the end and commit."""
    messages: list[DeliveredMessage] = []
    while batch := mq.poll(GROUP, CONSUMER):
        messages += batch
        mq.commit(GROUP, CONSUMER)
    return messages


def balances(messages: Iterable[DeliveredMessage]) -> dict[str, int]:
    """The view: what the movements add up to."""
    view: Counter[str] = Counter()
    for message in messages:
        view[str(message.key)] += message.value
    return dict(view)


def lag(mq: MessageQueue) -> int:
    """What is not committed, over all partitions."""
    return sum(mq.get_consumer_lag(GROUP).values())


def rebuild(mq: MessageQueue) -> dict[str, int]:
    """Go back to the beginning of each partition, and build the view from nothing."""
    for partition in range(PARTITIONS):
        mq.seek(GROUP, partition, BEGINNING)
    # Going back takes the committed offset along: a crash during the replay repeats the replay.
    assert lag(mq) == len(MOVEMENTS)
    return balances(read_all(mq))


def read_latest(mq: MessageQueue, partition: int, count: int) -> list[DeliveredMessage]:
    """Go back by `count` messages in one partition."""
    next_offset = mq.get_topic_info(TOPIC).partitions[partition].next_offset
    mq.seek(GROUP, partition, next_offset - count)
    return read_all(mq)


def skip_to_the_end(mq: MessageQueue) -> None:
    """Leave out what was not read yet."""
    for partition in range(PARTITIONS):
        mq.seek(GROUP, partition, END)
    # Nothing was processed yet, so nothing is committed yet: the lag still tells what was skipped.
    assert lag(mq) == 3
    mq.commit(GROUP, CONSUMER)
    assert lag(mq) == 0


def main() -> None:
    """Process, then replay in three ways."""
    with MessageQueue() as mq:
        mq.create_topic(TOPIC, PARTITIONS)
        mq.create_consumer_group(GROUP, TOPIC)
        mq.add_consumer(GROUP, CONSUMER)

        publish(mq, MOVEMENTS)
        processed = read_all(mq)
        view = balances(processed)
        rebuilt = rebuild(mq)

        of_alice = next(m.partition for m in processed if m.key == "alice")
        latest = read_latest(mq, of_alice, 2)

        publish(mq, [("dave", 1), ("erin", 2), ("frank", 3)])
        skip_to_the_end(mq)
        publish(mq, [("alice", 40)])
        after_end = read_all(mq)

    assert (BEGINNING, END) == (-1, -2)
    assert view == {"alice": 78, "bob": 55, "carol": 70}
    assert rebuilt == view
    of_hers = [message for message in processed if message.partition == of_alice]
    assert [m.message_id for m in latest] == [m.message_id for m in of_hers[-2:]]
    assert [(m.key, m.value) for m in after_end] == [("alice", 40)]
    print(f"balances, processed: {view}")
    print(f"balances, rebuilt:   {rebuilt}")
    print(f"the latest two of partition {of_alice}: {[(m.key, m.value) for m in latest]}")
    print(f"after END: {[(m.key, m.value) for m in after_end]}")


if __name__ == "__main__":
    main()
