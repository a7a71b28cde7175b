"""Four producer threads and four consumer threads share one queue, and nothing goes wrong.

Every message is completed exactly once, and each key keeps its order. Three things make it so:

* Every method of `MessageQueue` may be called from any thread; there is no lock in this program
  around it.
* A key is in one partition, and a partition has one owner at a time. So what one thread publishes
  with one key is also processed in that order, although four threads process.
* Threads that have nothing to do wait in their loop over the consumer. `wakeup` ends it, so the
  program ends without anybody looking at a flag every few milliseconds.

For most programs a pool of workers does all this in one line, see worker_pool.py.

Run it with ``python examples/concurrent_producers_consumers.py``.
"""

import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

from dmq_actors import AckResult, Consumer, Message, MessageQueue

TOPIC, GROUP = "sales", "bookkeeping"
PRODUCERS = CONSUMERS = 4
PARTITIONS = 8
SALES_EACH = 500
ACCOUNTS = 25


class Sale(NamedTuple):
    """What is published: the how-manieth sale of which till, on which account."""

    account: str
    till: str
    number: int


class Ledger:
    """What was completed; all consumer threads write into it."""

    def __init__(self) -> None:
        self.times_completed: Counter[Sale] = Counter()
        self.numbers: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def enter(self, sale: Sale) -> None:
        """Note a completed sale."""
        with self._lock:
            self.times_completed[sale] += 1
            self.numbers[sale.account, sale.till].append(sale.number)


def produce(mq: MessageQueue, till: str) -> None:
    """Publish the sales of one till; all tills share the accounts."""
    for number in range(SALES_EACH):
        sale = Sale(f"account-{number % ACCOUNTS}", till, number)
        mq.publish(TOPIC, Message(sale, key=sale.account))


def consume(consumer: Consumer, ledger: Ledger) -> int:
    """Process until woken; returns how many messages this thread completed."""
    completed = 0
    with consumer:  # it leaves the group in any case
        for message in consumer:
            if consumer.ack(message) is AckResult.COMPLETED:
                ledger.enter(message.value)
                completed += 1
    return completed


def run(ledger: Ledger) -> dict[str, int]:
    """Let all threads work; returns how many messages each consumer completed."""
    # The queue stands last and so is closed first: should anything fail in here, that ends the
    # loops, and the pool, which waits for its threads, can end.
    with ThreadPoolExecutor(PRODUCERS + CONSUMERS) as pool, MessageQueue() as mq:
        mq.create_topic(TOPIC, PARTITIONS)
        mq.create_consumer_group(GROUP, TOPIC)
        # All join before the first message: a later join would move partitions, and with them
        # messages that somebody is just processing (see rebalance.py).
        consumers = [mq.consumer(GROUP, consumer_id=f"consumer-{n}") for n in range(CONSUMERS)]

        consuming = {c.consumer_id: pool.submit(consume, c, ledger) for c in consumers}
        producing = [pool.submit(produce, mq, f"till-{n}") for n in range(PRODUCERS)]
        for producer in producing:
            producer.result()
        mq.wait_idle(TOPIC, timeout=30.0)

        # They wait for a message that will never come: this ends their wait.
        for consumer in consumers:
            consumer.wakeup()
        return {name: consumed.result() for name, consumed in consuming.items()}


def main() -> None:
    """Run it and check what the ledger holds."""
    ledger = Ledger()
    completed_by = run(ledger)

    assert len(ledger.times_completed) == PRODUCERS * SALES_EACH
    assert set(ledger.times_completed.values()) == {1}
    assert sum(completed_by.values()) == PRODUCERS * SALES_EACH
    assert len(ledger.numbers) == ACCOUNTS * PRODUCERS
    for numbers in ledger.numbers.values():
        assert all(earlier < later for earlier, later in pairwise(numbers))

    for consumer_id, completed in completed_by.items():
        print(f"{consumer_id} completed {completed}")
    print(f"{PRODUCERS * SALES_EACH} sales, each completed once, in order on each account")


if __name__ == "__main__":
    main()
