"""Two threads, two consumers: the cure for two_pollers_broken.py.

The members of a group share the partitions of its topic; each partition has one owner at a time,
and each key is in one partition. So a second consumer, not a second thread inside of one, is what
makes it faster, and both promises hold:

* **Order.** What anna ordered is handled in that order, because one consumer has all of it.
* **Safety.** A consumer completes only what it was given itself. When its thread fails, it leaves
  the group at once, and what it had in hand goes to the other one.

Run it with ``python examples/two_pollers_fixed.py``. It does the same twice: with threads of its
own, and with a pool, which is those threads and that loop in one line.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from dmq_actors import Message, MessageQueue

if TYPE_CHECKING:
    from dmq_actors import Consumer, DeliveredMessage

PARTITIONS, CUSTOMERS, ORDERS = 4, 8, 200


class ThreadFailedError(Exception):
    """Something happens, some day."""


class Billing:
    """Notes what was handled, by customer; fails once, in the middle."""

    def __init__(self) -> None:
        self.handled: dict[str, list[int]] = {f"customer-{n}": [] for n in range(CUSTOMERS)}
        self.has_failed = threading.Event()

    def handle(self, message: DeliveredMessage) -> None:
        """One order."""
        if message.value == ORDERS // 2 and not self.has_failed.is_set():
            self.has_failed.set()
            raise ThreadFailedError(f"with order {message.value} in hand")
        self.handled[str(message.key)].append(message.value)


def orders() -> list[Message]:
    """Orders of all customers in turn."""
    return [Message(number, key=f"customer-{number % CUSTOMERS}") for number in range(ORDERS)]


def consume(consumer: Consumer, billing: Billing) -> None:
    """What each thread does, with a consumer of its own."""
    with consumer:  # it leaves the group in any case
        for message in consumer:
            billing.handle(message)
            consumer.ack(message)


def with_two_consumers() -> Billing:
    """Two threads with a consumer each; one of them dies, and the other does its work."""
    billing = Billing()
    with ThreadPoolExecutor(2) as threads, MessageQueue() as mq:
        mq.create_topic("orders", PARTITIONS)
        mq.create_consumer_group("billing", "orders")
        # Both join before the first order: a later one would get messages that the first has in
        # hand, and they would be handled twice. That is allowed, but not what this is about.
        consumers = [mq.consumer("billing") for _ in range(2)]
        running = [threads.submit(consume, consumer, billing) for consumer in consumers]
        mq.publish_many("orders", orders())
        mq.wait_idle(timeout=30.0)
        members = mq.get_group_info("billing").members
    # The broker is closed, and that ends the loop of the one that is left.
    failed = [error for thread in running if (error := thread.exception())]
    assert [type(error) for error in failed] == [ThreadFailedError]
    assert len(members) == 1
    return billing


def with_a_pool() -> Billing:
    """The same in one line. A handler that fails does not even cost its thread."""
    billing = Billing()
    with MessageQueue() as mq:
        mq.create_topic("orders", PARTITIONS)
        mq.create_consumer_group("billing", "orders", retry_backoff=0.01)
        with mq.workers("billing", billing.handle, concurrency=2):
            mq.publish_many("orders", orders())
            mq.wait_idle(timeout=30.0, expected=ThreadFailedError)
    return billing


def main() -> None:
    """Do it both ways, and check that nothing is lost, doubled or out of order."""
    logging.basicConfig(level=logging.ERROR)  # the failure is meant, so no warning of it
    for billing in (with_two_consumers(), with_a_pool()):
        assert billing.has_failed.is_set()
        for number, handled in enumerate(billing.handled.values()):
            assert handled == list(range(number, ORDERS, CUSTOMERS))
    print(
        f"{ORDERS} orders, once each, in order for each customer, although a thread failed: twice"
    )


if __name__ == "__main__":
    main()
