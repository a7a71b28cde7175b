"""The figures that are promised, each as a ratio against a baseline in the same run.

Run it on an otherwise idle machine: ``pytest tests/benchmarks -m benchmark -s``. The rounds of the
two sides alternate, and medians are compared, because machines are noisy.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import pytest
from benchmarks.baseline import EchoActor, PlainQueue

from dmq_actors import Message, MessageQueue
from dmq_actors._runtime.dispatcher import Dispatcher
from dmq_actors._runtime.ref import Stop, closed_error

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]

ROUNDS = 15
VALUE = "x" * 100
KEYS = [f"key-{number}" for number in range(1000)]


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def medians(*works: Callable[[], object]) -> list[float]:
    """The median seconds of each, run in turn."""
    for work in works:
        work()
    rounds = [[seconds(work) for work in works] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


@pytest.fixture
def queue():
    with MessageQueue() as mq:
        mq.create_topic("t", 4)
        yield mq


def test_blocking_publish_costs_at_most_two_and_a_half_bare_asks(queue):
    dispatcher = Dispatcher()
    echo = EchoActor.spawn("echo", dispatcher)
    message = Message(VALUE, key="key-1")

    def ask():
        for _ in range(1000):
            echo.call(EchoActor.echo).get(timeout=10)

    def publish():
        for _ in range(1000):
            queue.publish("t", message)

    asked, published = medians(ask, publish)
    echo.deliver(Stop(closed_error), None)
    dispatcher.stop()
    assert dispatcher.join(time.monotonic() + 5) == []
    print(f"\nask {asked * 1e3:.1f} us, publish {published * 1e3:.1f} us")
    print(f"publish / ask: {published / asked:.2f}")
    assert published <= 2.5 * asked


def test_publish_many_is_at_least_four_times_the_plain_queue(queue):
    count, size = 10_000, 500
    plain = PlainQueue(4)

    def publish_plain():
        for at in range(count):
            plain.publish("t", VALUE, KEYS[at % 1000])

    def publish_many():
        for start in range(0, count, size):
            queue.publish_many(
                "t", [Message(VALUE, key=KEYS[at % 1000]) for at in range(start, start + size)]
            )

    slow, fast = medians(publish_plain, publish_many)
    print(f"\nplain {count / slow:,.0f}/s, publish_many {count / fast:,.0f}/s: {slow / fast:.2f} x")
    assert queue.get_topic_info("t").message_count == count * (ROUNDS + 1)
    assert slow >= 4 * fast


def test_poll_delivers_two_million_messages_a_second(queue):
    count, size = 100_000, 500
    for start in range(0, count, size):
        queue.publish_many(
            "t", [Message(VALUE, key=KEYS[at % 1000]) for at in range(start, start + size)]
        )
    rates = []
    for number in range(ROUNDS):
        group = f"g{number}"
        queue.create_consumer_group(group, "t")
        queue.add_consumer(group, "c")
        seen = 0
        started = time.perf_counter()
        while batch := queue.poll(group, "c", size):
            seen += len(batch)
        rates.append(seen / (time.perf_counter() - started))
        assert seen == count
        queue.delete_consumer_group(group)
    rate = statistics.median(rates)
    print(f"\npoll({size}): {rate:,.0f} messages/s (best {max(rates):,.0f})")
    assert rate >= 2_000_000
