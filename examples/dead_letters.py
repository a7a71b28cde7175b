"""A poison message: retried, buried, looked at, repaired, sent again.

One of three payments has a comma where a point should be, so its handler fails whenever it is
tried. It must not block the others for ever, and must not be lost either:

* It is tried three times, with a growing pause. Until then alice's next payment waits behind it,
  because a key keeps its order; bob's does not have to.
* Then it goes to the dead-letter topic, a topic like any other, with headers that tell its story.
* Once somebody knows the cause, `redrive` sends it back, repaired.

The broker runs on a clock that stands still until told, so that nobody has to wait for the pauses.
With the real clock a long poll does that: it returns when the next attempt is due.

Run it with ``python examples/dead_letters.py``.
"""

from collections import Counter

from dmq_actors import (
    DEAD_LETTER_PREFIX,
    AckResult,
    DeadLetterHeader,
    DeliveredMessage,
    Message,
    MessageQueue,
    StoredMessage,
)
from dmq_actors.testing import ManualClock

TOPIC, GROUP, CONSUMER = "payments", "booking", "booker"
RETRY_BACKOFF = 60.0

Attempt = tuple[str, str, int, AckResult]
"""Account, amount, the how-manieth delivery, what became of it."""


def book(message: DeliveredMessage, accounts: Counter[str]) -> None:
    """The handler: it fails for an amount that is no number."""
    accounts[str(message.key)] += round(float(message.value) * 100)


def work(mq: MessageQueue, accounts: Counter[str]) -> list[Attempt]:
    """Process all that may be processed now."""
    attempts: list[Attempt] = []
    # One message at a time: what is in hand already cannot wait behind a failure any more.
    while batch := mq.poll(GROUP, CONSUMER, max_messages=1):
        [message] = batch
        try:
            book(message, accounts)
        except ValueError as error:
            result = mq.acknowledge(GROUP, message, success=False, error=error)
        else:
            result = mq.acknowledge(GROUP, message)
        attempts.append((str(message.key), message.value, message.delivery_attempt, result))
    return attempts


def fail_until_dead(mq: MessageQueue, clock: ManualClock, accounts: Counter[str]) -> list[Attempt]:
    """Three attempts, a minute and then two minutes apart."""
    at_once = work(mq, accounts)
    assert at_once == [
        ("alice", "12,50", 1, AckResult.RETRYING),
        ("bob", "7.00", 1, AckResult.COMPLETED),
    ]
    [partition] = mq.get_group_info(GROUP).partitions
    assert (partition.retrying, partition.held) == (1, 1)
    # bob's payment is completed, but the committed offset never jumps over a gap.
    assert partition.committed_offset == 0

    clock.advance(RETRY_BACKOFF)
    after_one_minute = work(mq, accounts)
    assert after_one_minute == [("alice", "12,50", 2, AckResult.RETRYING)]

    clock.advance(2 * RETRY_BACKOFF)
    after_three_minutes = work(mq, accounts)
    assert after_three_minutes == [
        ("alice", "12,50", 3, AckResult.DEAD_LETTERED),
        ("alice", "3.00", 1, AckResult.COMPLETED),
    ]
    assert mq.get_group_info(GROUP).lag == 0
    return [*at_once, *after_one_minute, *after_three_minutes]


def read_dead_letters(mq: MessageQueue) -> list[DeliveredMessage]:
    """A dead-letter topic is read like any other topic."""
    mq.create_consumer_group("triage", DEAD_LETTER_PREFIX + TOPIC)
    mq.add_consumer("triage", "somebody")
    letters = mq.poll("triage", "somebody")
    mq.commit("triage", "somebody")
    return letters


def check_story(letter: DeliveredMessage) -> None:
    """Key, value and headers are the original's; the broker's headers say what happened."""
    headers = letter.headers
    assert (letter.key, letter.value) == ("alice", "12,50")
    assert headers["trace"] == "t-1"
    assert headers[DeadLetterHeader.TOPIC] == TOPIC
    assert headers[DeadLetterHeader.OFFSET] == "0"
    assert headers[DeadLetterHeader.GROUP] == GROUP
    assert headers[DeadLetterHeader.FAILURES] == "3"
    first, last = headers[DeadLetterHeader.FIRST_FAILED], headers[DeadLetterHeader.LAST_FAILED]
    assert float(str(last)) - float(str(first)) == 3 * RETRY_BACKOFF


def repair(letter: StoredMessage) -> Message | None:
    """What `redrive` sends instead of a dead letter; None leaves it for another time."""
    if "," not in letter.value:
        return None
    amount = letter.value.replace(",", ".")
    # The broker takes its own headers off again; the producer's stay.
    return Message(amount, letter.key, {**letter.headers, "repaired": "decimal comma"})


def main() -> None:
    """From the first failure to the booked payment."""
    clock, accounts = ManualClock(), Counter[str]()
    with MessageQueue(clock=clock) as mq:
        mq.create_topic(TOPIC)
        mq.create_consumer_group(GROUP, TOPIC, max_failures=3, retry_backoff=RETRY_BACKOFF)
        mq.add_consumer(GROUP, CONSUMER)
        mq.publish(TOPIC, Message("12,50", key="alice", headers={"trace": "t-1"}))
        mq.publish(TOPIC, Message("3.00", key="alice"))
        mq.publish(TOPIC, Message("7.00", key="bob"))

        attempts = fail_until_dead(mq, clock, accounts)
        [letter] = read_dead_letters(mq)
        check_story(letter)

        redriven = mq.redrive(TOPIC, repair=repair)
        attempts += work(mq, accounts)
        redriven_again = mq.redrive(TOPIC, repair=repair)

    for account, amount, attempt, result in attempts:
        print(f"{account:5} {amount:>5}  attempt {attempt}: {result}")
    print("the dead letter says:")
    for name in DeadLetterHeader:
        print(f"  {name:25} {letter.headers[name]!s}")

    assert attempts[-1] == ("alice", "12.50", 1, AckResult.COMPLETED)
    assert [m.headers for m in redriven] == [{"trace": "t-1", "repaired": "decimal comma"}]
    assert redriven_again == []
    assert accounts == {"alice": 1550, "bob": 700}
    print(f"booked, in cents: {dict(accounts)}")


if __name__ == "__main__":
    main()
