"""The figures of the clients, each as a ratio against what one would use instead."""

from __future__ import annotations

import queue
import statistics
import threading
import time

import pytest

from dmq_actors import Message, MessageQueue

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]

ROUNDS = 15
THREADS, EACH = 4, 20_000
VALUE = "x" * 100
KEYS = [f"key-{number}" for number in range(1000)]


def rate(*works):
    """Messages per second, over all threads."""
    threads = [threading.Thread(target=work) for work in works]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return THREADS * EACH / (time.perf_counter() - started)


def through_a_queue():
    passed, counts = queue.Queue(), []

    def put():
        for at in range(EACH):
            passed.put(Message(VALUE, key=KEYS[at % 1000]))

    def get():
        counts.append(sum(passed.get() is not None for _ in range(EACH)))

    found = rate(*[put] * THREADS, *[get] * THREADS)
    assert sum(counts) == THREADS * EACH
    return found


def through_a_producer():
    stored = []
    with MessageQueue() as mq:
        mq.create_topic("t", 4)
        with mq.producer("t") as producer:

            def send():
                futures = [producer.send(Message(VALUE, key=KEYS[at % 1000])) for at in range(EACH)]
                stored.append(sum(future.result().offset >= 0 for future in futures))

            found = rate(*[send] * THREADS)
        assert sum(stored) == THREADS * EACH == mq.get_topic_info("t").message_count
    return found


def test_a_producer_sends_as_many_messages_as_a_queue_passes_on():
    through_a_queue(), through_a_producer()
    rounds = [(through_a_queue(), through_a_producer()) for _ in range(ROUNDS)]
    passed, sent = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"\nqueue.Queue {passed:,.0f}/s, Producer {sent:,.0f}/s: {sent / passed:.2f} x")
    assert sent >= passed
