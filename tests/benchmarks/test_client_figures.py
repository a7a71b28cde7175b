"""The figures of the clients, each as a ratio against what one would use instead."""

from __future__ import annotations

import asyncio
import queue
import statistics
import threading
import time
from functools import partial

import pytest
from benchmarks.baseline import EchoActor

from dmq_actors import Message, MessageQueue
from dmq_actors._runtime.dispatcher import Dispatcher
from dmq_actors._runtime.ref import Stop, closed_error

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


def produce(mq, number):
    batch = 500
    for start in range(0, EACH, batch):
        numbers = range(start, start + batch)
        mq.publish_many("t", [Message((number, at), key=KEYS[at % 1000]) for at in numbers])


def consume(consumer, done):
    """Poll and commit until woken; every message counted, and each in order for its key."""
    seen = {}
    while messages := consumer.poll(500, timeout=None):
        for message in messages:
            number, at = message.value
            assert seen.get((number, message.key), -1) < at, "out of order, or twice"
            seen[number, message.key] = at
        consumer.commit()
        done(len(messages))


def from_producers_to_consumers():
    """4 threads publish batches of 500, 4 consumers poll(500) and commit."""
    with MessageQueue() as mq:
        mq.create_topic("t", 4, share_values=True)
        mq.create_consumer_group("g", "t")
        consumers = [mq.consumer("g") for _ in range(THREADS)]
        counts = []

        def done(count):
            counts.append(count)
            if sum(counts) == THREADS * EACH:
                for consumer in consumers:
                    consumer.wakeup()

        found = rate(
            *[partial(produce, mq, number) for number in range(THREADS)],
            *[partial(consume, consumer, done) for consumer in consumers],
        )
        assert sum(counts) == THREADS * EACH
        assert mq.get_consumer_lag("g") == dict.fromkeys(range(4), 0)
        for consumer in consumers:
            consumer.close()
    return found


def test_producers_and_consumers_pass_on_twice_as_many_messages_as_a_queue():
    through_a_queue(), from_producers_to_consumers()
    rounds = [(through_a_queue(), from_producers_to_consumers()) for _ in range(ROUNDS)]
    passed, consumed = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"\nqueue.Queue {passed:,.0f}/s, end to end {consumed:,.0f}/s: {consumed / passed:.2f} x")
    assert consumed >= 2 * passed


def test_a_waiting_consumer_hears_of_a_message_within_five_bare_asks():
    """From before the publish to after the poll has returned, in another thread."""
    asks, waits = [], []
    dispatcher = Dispatcher()
    echo = EchoActor.spawn("echo", dispatcher)
    with MessageQueue() as mq:
        mq.create_topic("t")
        mq.create_consumer_group("g", "t")
        consumer = mq.consumer("g")
        ready, got = threading.Semaphore(0), queue.SimpleQueue()

        def consume():
            while True:
                ready.release()
                messages = consumer.poll(timeout=None)
                if not messages:
                    return
                got.put(time.perf_counter())
                consumer.commit()

        thread = threading.Thread(target=consume)
        thread.start()
        for _ in range(3000):
            ready.acquire()
            while not consumer._reader.session.polls:
                pass
            started = time.perf_counter()
            mq.publish("t", Message(VALUE))
            waits.append(got.get() - started)
            started = time.perf_counter()
            echo.call(EchoActor.echo).get()
            asks.append(time.perf_counter() - started)
        ready.acquire()
        consumer.wakeup()
        thread.join()
        consumer.close()
    echo.deliver(Stop(closed_error), None)
    dispatcher.stop()
    assert dispatcher.join(time.monotonic() + 5) == []
    ask, wait = statistics.median(asks), statistics.median(waits)
    p99 = statistics.quantiles(waits, n=100)[98]
    print(
        f"\nask {ask * 1e6:.1f} us, long poll p50 {wait * 1e6:.1f} us ({wait / ask:.2f} x), "
        f"p99 {p99 * 1e6:.1f} us"
    )
    assert wait <= 5 * ask


def test_five_hundred_waiting_consumers_cost_no_thread_and_no_processor():
    async def wait(mq, gate):
        async with mq.consumer("g") as consumer:
            await consumer.poll()
            gate.release()
            await consumer.poll(timeout=None)

    async def main():
        with MessageQueue() as mq:
            mq.create_topic("t", 100)
            mq.create_consumer_group("g", "t")
            before = threading.active_count() + 1  # the clock of the broker
            gate = asyncio.Semaphore(0)
            tasks = [asyncio.create_task(wait(mq, gate)) for _ in range(500)]
            for _ in tasks:
                await gate.acquire()
            await asyncio.sleep(1.0)  # the last ones come to rest
            assert threading.active_count() <= before
            used, started = time.process_time(), time.perf_counter()
            await asyncio.sleep(5.0)
            share = (time.process_time() - used) / (time.perf_counter() - started)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return share

    share = asyncio.run(main())
    print(f"\n500 waiting consumers: {share:.2%} of a processor")
    assert share < 0.01
