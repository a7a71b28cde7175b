"""At most once, at least once, exactly once: the same crash under each of them.

Three groups read the same six orders. In each, the first owner takes four of them, processes three,
acknowledges the first and the third, and is gone. A second consumer takes over. Later an operator
rewinds the group, and later still a producer sends an order again, because it never heard that the
first time went well.

What to read from the table:

* *at_most_once* commits before it hands out. What the crashed owner had not begun is lost.
* *at_least_once* and *exactly_once* do the same after a crash: all that was not completed goes to
  the next owner. One order had been processed but not acknowledged. Whether its effect took place,
  the broker cannot know, so it is processed twice, **in an exactly-once group too**. Only a handler
  whose effect can be repeated without harm closes that gap.
* What *exactly_once* adds: a completed message is never delivered again, neither after a rewind nor
  when a producer sends a message again under the same ``message_id``.
* A late acknowledgement of the crashed owner is ``stale``: it cannot complete what is now somebody
  else's. (At most once completed it in the poll; acknowledging does nothing there.)

Run it with ``python examples/delivery_semantics.py``.
"""

from collections import Counter
from dataclasses import dataclass

from dmq_actors import (
    BEGINNING,
    AckResult,
    DeliveredMessage,
    Delivery,
    Message,
    MessageQueue,
    StaleAssignmentError,
)

TOPIC = "orders"
ORDERS = [f"order-{number}" for number in range(1, 7)]


@dataclass(frozen=True)
class Outcome:
    """What happened in one group."""

    lost: set[str]
    twice: set[str]
    late_ack: AckResult
    after_rewind: set[str]
    after_resend: set[str]


def order(name: str) -> Message:
    """An order names itself, so that one that is sent twice can be recognised."""
    return Message(name, message_id=name)


def process_some_and_crash(mq: MessageQueue, group: str) -> tuple[list[str], DeliveredMessage]:
    """Returns what was processed, and the message that was not acknowledged any more."""
    mq.add_consumer(group, "first")
    one, two, three, _not_begun = mq.poll(group, "first", max_messages=4)
    mq.acknowledge(group, one)
    mq.acknowledge(group, three)
    # What a supervisor does when it finds the thread of a consumer dead.
    mq.remove_consumer(group, "first")
    return [one.value, two.value, three.value], two


def process_all(mq: MessageQueue, group: str) -> list[str]:
    """The second consumer: process and acknowledge whatever there is."""
    processed = []
    while messages := mq.poll(group, "second"):
        for message in messages:
            processed.append(message.value)
            mq.acknowledge(group, message)
    return processed


def acknowledge_late(mq: MessageQueue, group: str, message: DeliveredMessage) -> AckResult:
    """The first owner was not dead after all, only slow."""
    try:
        mq.commit(group, "first")
    except StaleAssignmentError:
        return mq.acknowledge(group, message)
    raise AssertionError("a removed consumer must not be able to commit")


def crash_and_take_over(mq: MessageQueue, group: str) -> tuple[set[str], set[str], AckResult]:
    """Returns what was lost, what was processed twice, and what the late ack did."""
    processed, unacknowledged = process_some_and_crash(mq, group)
    mq.add_consumer(group, "second")
    late_ack = acknowledge_late(mq, group, unacknowledged)
    times = Counter([*processed, *process_all(mq, group)])
    return set(ORDERS) - set(times), {name for name, n in times.items() if n > 1}, late_ack


def rewind(mq: MessageQueue, group: str) -> set[str]:
    """Go back to the first order; returns what is processed again."""
    mq.seek(group, 0, BEGINNING)
    return set(process_all(mq, group))


def run() -> dict[Delivery, Outcome]:
    """The same stream and the same mishaps for the three groups."""
    with MessageQueue() as mq:
        mq.create_topic(TOPIC)
        for delivery in Delivery:
            mq.create_consumer_group(delivery, TOPIC, delivery)
        mq.publish_many(TOPIC, map(order, ORDERS))

        crashes = {delivery: crash_and_take_over(mq, delivery) for delivery in Delivery}
        rewinds = {delivery: rewind(mq, delivery) for delivery in Delivery}
        mq.publish(TOPIC, order("order-2"))
        resends = {delivery: set(process_all(mq, delivery)) for delivery in Delivery}

    return {
        delivery: Outcome(*crashes[delivery], rewinds[delivery], resends[delivery])
        for delivery in Delivery
    }


def show(names: set[str]) -> str:
    """A cell of the table."""
    if names == set(ORDERS):
        return "all"
    return ", ".join(sorted(names)) or "-"


def main() -> None:
    """Print the table and check every cell."""
    outcomes = run()

    line = "{:14} {:8} {:8} {:10} {:19} {}".format
    print(line("", "lost", "twice", "late ack", "again after rewind", "again after re-send"))
    for delivery, outcome in outcomes.items():
        lost, twice = show(outcome.lost), show(outcome.twice)
        after_rewind, after_resend = show(outcome.after_rewind), show(outcome.after_resend)
        print(line(delivery, lost, twice, outcome.late_ack, after_rewind, after_resend))

    everything = set(ORDERS)
    assert outcomes == {
        Delivery.AT_MOST_ONCE: Outcome(
            lost={"order-4"},
            twice=set(),
            late_ack=AckResult.COMPLETED,
            after_rewind=everything,
            after_resend={"order-2"},
        ),
        Delivery.AT_LEAST_ONCE: Outcome(
            lost=set(),
            twice={"order-2"},
            late_ack=AckResult.STALE,
            after_rewind=everything,
            after_resend={"order-2"},
        ),
        Delivery.EXACTLY_ONCE: Outcome(
            lost=set(),
            twice={"order-2"},
            late_ack=AckResult.STALE,
            after_rewind=set(),
            after_resend=set(),
        ),
    }
    print("every cell is as the semantics promise")


if __name__ == "__main__":
    main()
