"""A worker pool: say what becomes of one message, and let the broker run it.

300 payments wait for a bank. It is out of order now and then, and some of the payments cannot be
read. A pool of four workers charges them:

* What the handler raises counts as a failure of that one message. It is tried again, and becomes a
  dead letter when it has failed three times; the others go on.
* Payments of one customer are charged in the order they came in, also when one had to be retried.
* `wait_idle` waits until everything is done. Nobody counts messages, and nobody sleeps.

Run it with ``python examples/worker_pool.py``.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from dmq_actors import DEAD_LETTER_PREFIX, DeadLetterHeader, Message, MessageQueue

if TYPE_CHECKING:
    from dmq_actors import DeliveredMessage, StoredMessage

CUSTOMERS = [f"customer-{number}" for number in range(10)]
PAYMENTS = 300
OUTAGES = range(0, PAYMENTS, 37)  # the first attempt to charge these finds no bank
UNREADABLE = {57: "12,50 EUR", 204: ""}  # and these have no number in place of their amount


class BankIsDownError(Exception):
    """Comes and goes."""


class Bank:
    """Charges accounts. A customer is with one worker at a time, so there is no lock in here."""

    def __init__(self) -> None:
        self.charged: dict[str, list[int]] = {customer: [] for customer in CUSTOMERS}

    def charge(self, message: DeliveredMessage) -> None:
        """The handler: returns when it is done, raises when it is not."""
        number, amount = message.value
        if number in OUTAGES and message.delivery_attempt == 1:
            raise BankIsDownError(f"no answer for payment {number}")
        float(amount)  # ValueError if nobody can read it
        self.charged[str(message.key)].append(number)


def payments() -> list[Message]:
    """Payments in the order they were made; the key is who pays."""
    amounts = {number: f"{number}.00" for number in range(PAYMENTS)} | UNREADABLE
    return [Message((n, amount), key=CUSTOMERS[n % 10]) for n, amount in amounts.items()]


def repair(letter: StoredMessage) -> Message:
    """Somebody looked it up."""
    number, _ = letter.value
    return Message((number, "1.00"), letter.key)


def read_dead_letters(mq: MessageQueue) -> dict[int, str]:
    """What failed three times, and the last error; dead letters are in a topic like any other."""
    mq.create_consumer_group("inspection", DEAD_LETTER_PREFIX + "payments")
    with mq.consumer("inspection") as consumer:
        letters = consumer.poll(timeout=1.0)
        consumer.commit()
    return {letter.value[0]: str(letter.headers[DeadLetterHeader.ERROR]) for letter in letters}


def main() -> None:
    """Charge, look at what failed, repair it, check."""
    # Each failure of a handler is logged as a warning. Here they are looked at in the end.
    logging.basicConfig(level=logging.ERROR)
    bank = Bank()
    with MessageQueue() as mq:
        # One partition would keep one worker busy, and let three of them wait.
        mq.create_topic("payments", num_partitions=8)
        mq.create_consumer_group("charging", "payments", max_failures=3)
        with mq.workers("charging", bank.charge, concurrency=4) as pool:
            mq.publish_many("payments", payments())
            # If it takes longer than that, the error says who is not done, and why. These two kinds
            # of failures are no reason to stop waiting.
            mq.wait_idle("payments", timeout=30.0, expected=(BankIsDownError, ValueError))
            charged = {customer: list(numbers) for customer, numbers in bank.charged.items()}
            failures = Counter(type(failure.error).__name__ for failure in pool.failures)

            dead = read_dead_letters(mq)
            mq.redrive("payments", repair=repair)  # back to the topic, and so to the pool
            mq.wait_idle("payments", timeout=30.0, expected=(BankIsDownError, ValueError))

    for customer, numbers in charged.items():
        assert numbers == sorted(numbers), f"{customer} was charged in another order"
    readable = set(range(PAYMENTS)) - set(UNREADABLE)
    assert sorted(n for numbers in charged.values() for n in numbers) == sorted(readable)
    assert failures == {"BankIsDownError": len(OUTAGES), "ValueError": 3 * len(UNREADABLE)}
    assert dead.keys() == UNREADABLE.keys()
    assert sum(map(len, bank.charged.values())) == PAYMENTS  # with those that were repaired

    for number, error in sorted(dead.items()):
        print(f"payment {number} became a dead letter: {error}")
    print(f"{PAYMENTS} payments, each charged once, each customer's in order; {dict(failures)}")


if __name__ == "__main__":
    main()
