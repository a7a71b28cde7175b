"""Two threads share one consumer: what goes wrong. The cure is in two_pollers_fixed.py.

It looks like an easy way to twice the speed: start two threads, and let both poll with the same
consumer id. The raw calls of `MessageQueue` allow it, and never give a message to both. But two
promises rest on a consumer being *one* reader, and both break without a word:

* **Order.** The second thread gets the later orders of anna while the first still has the earlier
  ones in hand. Whoever is faster is first.
* **Safety.** ``commit`` completes what was delivered to the *consumer*. When the second thread
  commits, it also commits for the first one. If that one now fails, what it had in hand is lost.

The object `Consumer` knows better: it refuses the second thread, and nothing happens.

Run it with ``python examples/two_pollers_broken.py``. The threads run in an order that always goes
wrong; in a real program it goes wrong on some days.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from dmq_actors import ConcurrentUseError, Message, MessageQueue

ORDERS = ["a book", "a lamp", "a pen", "a chair"]  # all of anna's, in the order she gave them


class FirstThreadFailedError(Exception):
    """Something happens, some day."""


def share_an_id(mq: MessageQueue) -> list[str]:
    """Wrong: two threads poll as ``worker-1``. Answers what was handled, in that order."""
    mq.create_topic("orders")
    mq.create_consumer_group("billing", "orders")
    mq.add_consumer("billing", "worker-1")
    mq.publish_many("orders", [Message(order, key="anna") for order in ORDERS])
    handled: list[str] = []
    first_has_polled, second_has_committed = Event(), Event()

    def first_thread() -> None:
        messages = mq.poll("billing", "worker-1", max_messages=2)
        first_has_polled.set()
        second_has_committed.wait(10.0)  # it is the slower one
        handled.append(messages[0].value)
        raise FirstThreadFailedError(f"with {messages[1].value} in hand")

    def second_thread() -> None:
        first_has_polled.wait(10.0)
        messages = mq.poll("billing", "worker-1", max_messages=2)
        handled.extend(message.value for message in messages)
        mq.commit("billing", "worker-1")
        second_has_committed.set()

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(first_thread), threads.submit(second_thread)
    second.result()
    assert isinstance(first.exception(), FirstThreadFailedError)

    # Somebody notices that it died, and has its work done by another one. There is none.
    mq.remove_consumer("billing", "worker-1")
    mq.add_consumer("billing", "worker-2")
    assert mq.poll("billing", "worker-2") == []
    assert mq.get_group_info("billing").lag == 0  # nothing to see
    return handled


def share_a_consumer(mq: MessageQueue) -> str:
    """Wrong, too, but it says so: a `Consumer` is for one thread. Answers what it says."""
    inside, leave = Event(), Event()

    def stay_inside(_partitions: list[int]) -> None:
        inside.set()
        leave.wait(10.0)

    mq.create_consumer_group("shipping", "orders")
    with (
        ThreadPoolExecutor(1) as threads,
        mq.consumer("shipping", on_assigned=stay_inside) as consumer,  # runs inside of `poll`
    ):
        first = threads.submit(consumer.poll)
        inside.wait(10.0)
        try:
            consumer.poll()
        except ConcurrentUseError as error:
            said = str(error)
        finally:
            leave.set()
        # The first one does not even notice.
        assert [message.value for message in first.result()] == ORDERS
    return said


def main() -> None:
    """Show both."""
    with MessageQueue() as mq:
        handled = share_an_id(mq)
        said = share_a_consumer(mq)
    assert handled == ["a pen", "a chair", "a book"]  # the wrong order, and where is the lamp?
    print(f"ConcurrentUseError: {said}")
    print(f"handled {handled}: out of order, and {set(ORDERS) - set(handled)} is lost")


if __name__ == "__main__":
    main()
