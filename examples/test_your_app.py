"""How to test a program that uses the broker.

Run it with ``pytest examples/test_your_app.py``, or with ``python``, which does the same.

The upper half is a small program, the lower half its tests. The fixtures `message_queue`,
`message_queue_factory` and `manual_clock` come with dmq_actors; nothing has to be set up, nothing
sleeps, and whatever an actor does wrong unseen fails the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dmq_actors import AckResult, DeadLetterHeader, Message
from dmq_actors.testing import (
    Faults,
    ManualClock,
    SeededScheduler,
    expire_member,
    force_rebalance,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors import MessageQueue, WorkerPool

# The program: payments, each charged once, three attempts, a minute between them


class Bank:
    """Where the money goes; may be out of order."""

    def __init__(self) -> None:
        self.charged: dict[str, str] = {}
        self.is_down = False

    def charge(self, payment_id: str, amount: str) -> None:
        """Take the money, once for each id: a payment may be delivered twice."""
        if self.is_down:
            raise ConnectionError("the bank does not answer")
        self.charged[payment_id] = amount


def set_up(mq: MessageQueue, max_failures: int = 3) -> None:
    """Topics and groups of the program."""
    mq.create_topic("payments", num_partitions=2)
    mq.create_consumer_group("chargers", "payments", max_failures=max_failures, retry_backoff=60.0)


def start(mq: MessageQueue, bank: Bank) -> WorkerPool:
    """The program as it runs: a pool charges what is there and what comes."""
    return mq.workers(
        "chargers", lambda payment: bank.charge(payment.message_id, payment.value), concurrency=2
    )


def charge_all(mq: MessageQueue, bank: Bank, worker: str = "worker-1") -> list[AckResult]:
    """The same by hand: charge what is there now, and tell what became of it."""
    results = []
    for message in mq.poll("chargers", worker):
        try:
            bank.charge(message.message_id, message.value)
        except ConnectionError as error:
            results.append(mq.acknowledge("chargers", message, success=False, error=error))
        else:
            results.append(mq.acknowledge("chargers", message))
    return results


# Its tests


def test_all_payments_are_charged(message_queue: MessageQueue) -> None:
    """The program as it runs. `wait_idle` instead of a sleep or a count."""
    bank = Bank()
    set_up(message_queue)
    with start(message_queue, bank):
        message_queue.publish_many("payments", [Message(f"{euros} EUR") for euros in range(20)])
        message_queue.wait_idle()
    assert len(bank.charged) == 20


def test_a_payment_that_fails_does_not_stop_the_program(message_queue: MessageQueue) -> None:
    """A handler that fails unseen fails the test. This one is seen."""
    bank = Bank()
    bank.is_down = True
    set_up(message_queue, max_failures=1)
    with start(message_queue, bank) as pool:
        message_queue.publish("payments", Message("10 EUR"))
        message_queue.wait_idle(expected=ConnectionError)
        bank.is_down = False
        message_queue.publish("payments", Message("20 EUR"))
        message_queue.wait_idle(expected=ConnectionError)
    assert [type(failure.error) for failure in pool.failures] == [ConnectionError]
    assert list(bank.charged.values()) == ["20 EUR"]
    message_queue.take_handler_failures()  # looked at: nothing is left for the fixture to tell


def test_a_payment_is_charged(message_queue: MessageQueue) -> None:
    """Without threads of your own: one step after the other."""
    bank = Bank()
    set_up(message_queue)
    message_queue.add_consumer("chargers", "worker-1")
    message_queue.publish("payments", Message("10 EUR", key="anna"))
    assert charge_all(message_queue, bank) == [AckResult.COMPLETED]
    assert list(bank.charged.values()) == ["10 EUR"]


def test_a_payment_is_tried_again_after_a_minute(
    message_queue: MessageQueue, manual_clock: ManualClock
) -> None:
    """A test that uses `manual_clock`, too, gets a broker that runs on it."""
    bank = Bank()
    set_up(message_queue)
    message_queue.add_consumer("chargers", "worker-1")
    message_queue.publish("payments", Message("10 EUR", key="anna"))
    bank.is_down = True
    assert charge_all(message_queue, bank) == [AckResult.RETRYING]
    bank.is_down = False
    assert charge_all(message_queue, bank) == []
    manual_clock.advance(60.0)
    assert charge_all(message_queue, bank) == [AckResult.COMPLETED]


def test_a_payment_that_fails_three_times_is_put_aside(
    message_queue: MessageQueue, manual_clock: ManualClock
) -> None:
    """Three attempts, the second wait twice as long."""
    bank = Bank()
    bank.is_down = True
    set_up(message_queue)
    message_queue.add_consumer("chargers", "worker-1")
    message_queue.publish("payments", Message("10 EUR", key="anna"), partition=0)
    results = charge_all(message_queue, bank)
    for seconds in (60.0, 120.0):
        manual_clock.advance(seconds)
        results += charge_all(message_queue, bank)
    assert results == [AckResult.RETRYING, AckResult.RETRYING, AckResult.DEAD_LETTERED]
    dead_letters = message_queue.partition_actor("__dlq_payments", 0)
    [dead] = dead_letters.read(0).get(timeout=10)
    assert "the bank does not answer" in str(dead.headers[DeadLetterHeader.ERROR])


def test_a_publish_that_fails_charges_nothing(
    message_queue_factory: Callable[..., MessageQueue],
) -> None:
    """What happens when the log cannot take a message? Let it fail and see."""
    bank, faults = Bank(), Faults()
    mq = message_queue_factory(faults=faults)
    set_up(mq)
    mq.add_consumer("chargers", "worker-1")
    rule = faults.fail("partition-payments-*", "append*", error=OSError("no room"))
    with pytest.raises(OSError, match="no room"):
        mq.publish("payments", Message("10 EUR"))
    assert charge_all(mq, bank) == []
    assert rule.hits == 1


def test_another_worker_takes_over(message_queue: MessageQueue) -> None:
    """A worker that hangs with a payment in hand is expelled; its late answer does not count."""
    bank = Bank()
    set_up(message_queue)
    message_queue.add_consumer("chargers", "worker-1")
    message_queue.publish("payments", Message("10 EUR"))
    [in_hand] = message_queue.poll("chargers", "worker-1")
    message_queue.add_consumer("chargers", "worker-2")
    expire_member(message_queue, "chargers", "worker-1")
    assert charge_all(message_queue, bank, "worker-2") == [AckResult.COMPLETED]
    assert message_queue.acknowledge("chargers", in_hand) is AckResult.STALE


def test_a_rebalance_in_the_middle_delivers_again(message_queue: MessageQueue) -> None:
    """So charging must be safe to do twice."""
    bank = Bank()
    set_up(message_queue)
    message_queue.add_consumer("chargers", "worker-1")
    message_queue.publish("payments", Message("10 EUR"))
    [in_hand] = message_queue.poll("chargers", "worker-1")
    bank.charge(in_hand.message_id, in_hand.value)
    force_rebalance(message_queue, "chargers")
    assert charge_all(message_queue, bank) == [AckResult.COMPLETED]
    assert len(bank.charged) == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_events_charges_twice(
    message_queue_factory: Callable[..., MessageQueue], manual_clock: ManualClock, seed: int
) -> None:
    """Twenty orders in which the actors may come to their turns; each can be run again.

    In some of them the second worker joins while the first has payments in hand, and gets them
    again.
    """
    bank = Bank()
    mq = message_queue_factory(scheduler=SeededScheduler(seed), clock=manual_clock)
    set_up(mq)
    mq.add_consumer("chargers", "worker-1")
    for number in range(4):  # promises: they race with the joining of the second worker
        mq.coordinator.publish("payments", Message(f"{number} EUR", key=str(number)))
    mq.coordinator.add_consumer("chargers", "worker-2")
    while mq.get_group_info("chargers").lag or len(bank.charged) < 4:
        charge_all(mq, bank, "worker-1")
        charge_all(mq, bank, "worker-2")
    assert sorted(bank.charged.values()) == ["0 EUR", "1 EUR", "2 EUR", "3 EUR"]


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q"]))
