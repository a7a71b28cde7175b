"""`WorkerPool`, `subscriber` and `wait_idle`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections import defaultdict

import pytest
from support import WATCHDOG, Crew, all_at_once

from dmq_actors import (
    BrokerClosedError,
    BrokerTimeoutError,
    DeadLetterHeader,
    HandlerFailedError,
    InvalidArgumentError,
    InvalidTypeError,
    Message,
    NotIdleError,
    UnknownGroupError,
    UnknownTopicError,
)


def fill(mq, count=0, *, partitions=4, **options):
    mq.create_topic("t", num_partitions=partitions)
    mq.create_consumer_group("g", "t", **options)
    mq.publish_many("t", [Message(number, key=str(number % 10)) for number in range(count)])


def in_order(handled):
    by_key = defaultdict(list)
    for message in handled:
        by_key[message.key].append(message.offset)
    return all(offsets == sorted(offsets) for offsets in by_key.values())


# Handling


def test_return_completes_and_order_per_key_is_kept(mq):
    fill(mq, 2000)
    handled = []
    with mq.workers("g", handled.append) as pool:
        mq.wait_idle()
        assert pool.group_id == "g"
        assert len(mq.get_group_info("g").members) == 4
    assert sorted(m.value for m in handled) == list(range(2000))
    assert in_order(handled)
    assert mq.get_consumer_lag("g") == dict.fromkeys(range(4), 0)
    assert mq.get_group_info("g").members == ()
    assert (pool.failures, pool.failures_total, pool.stopped_by) == ([], 0, None)


def test_an_exception_fails_the_message_and_stands_in_the_dead_letter(mq, caplog):
    fill(mq, 10, max_failures=2)

    def handle(message):
        if message.value == 3:
            raise ValueError("three")

    with mq.workers("g", handle) as pool:
        mq.wait_idle(expected=ValueError)
        assert pool.failures_total == 2
        assert [(f.group_id, f.message.value, f.message.delivery_attempt, repr(f.error))
                for f in pool.failures] == [
            ("g", 3, attempt, "ValueError('three')") for attempt in (1, 2)
        ]  # fmt: skip
    [dead] = [
        m
        for partition in range(4)
        for m in mq.partition_actor("__dlq_t", partition).read(0).get(timeout=WATCHDOG)
    ]
    assert dead.value == 3
    assert "ValueError: three" in dead.headers[DeadLetterHeader.ERROR]
    assert "handler.failed" in caplog.text
    assert mq.take_handler_failures() == []  # wait_idle has taken what it was told to expect


def test_what_comes_behind_a_failed_message_of_its_key_waits(mq):
    fill(mq, 0, partitions=1)
    mq.publish_many("t", [Message(number, key="k" if number % 2 else None) for number in range(20)])
    handled, failed = [], []

    def handle(message):
        if message.value == 3 and len(failed) < 2:
            failed.append(message)
            raise ValueError
        handled.append(message)

    with mq.workers("g", handle, concurrency=1):
        mq.wait_idle(expected=ValueError)
    keyed = [m.value for m in handled if m.key]
    assert keyed == sorted(keyed)
    assert [m.delivery_attempt for m in handled if m.value == 3] == [3]
    assert {m.delivery_attempt for m in handled if m.value != 3} == {1}


def test_batches_and_a_bad_one_in_a_batch_fails_alone(mq):
    fill(mq, 200, max_failures=1)
    handled, sizes = [], []

    def handle(messages):
        sizes.append(len(messages))
        if any(m.value == 77 for m in messages):
            raise ValueError("in this batch")
        handled.extend(messages)

    with mq.workers("g", handle, batch_size=16):
        mq.wait_idle(expected=ValueError)
    assert sorted(m.value for m in handled) == [n for n in range(200) if n != 77]
    assert in_order(handled)
    assert max(sizes) > 1
    assert max(sizes) <= 16
    assert mq.get_topic_info("__dlq_t").message_count == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_a_handler_stops_the_pool_and_nothing_else(mq, error):
    fill(mq, 100)

    def handle(message):
        if message.value == 50:
            raise error
        handled.append(message.value)

    handled = []
    pool = mq.workers("g", handle, concurrency=2)
    assert pool.wait(WATCHDOG)
    assert pool.stopped_by is error
    assert [f.error for f in pool.failures] == [error]
    assert [f.error for f in mq.take_handler_failures()] == [error]
    mq.publish("t", Message(100))
    rest = []
    with mq.workers("g", rest.append):
        mq.wait_idle()
    assert sorted(handled + [m.value for m in rest]) == list(range(101))
    assert {m.delivery_attempt for m in rest} == {1}
    pool.close()


def test_close_finishes_what_is_in_hand_and_gives_back_the_rest_uncounted(mq):
    fill(mq, 40, partitions=2)
    begun, go_on = threading.Semaphore(0), threading.Event()
    handled = []

    def handle(message):
        begun.release()
        assert go_on.wait(WATCHDOG)
        handled.append(message)

    pool = mq.workers("g", handle, concurrency=2)
    assert begun.acquire(timeout=WATCHDOG)
    assert begun.acquire(timeout=WATCHDOG)
    with pytest.raises(BrokerTimeoutError, match="dmq-worker-g-"):
        pool.close(timeout=0.01)
    go_on.set()
    assert all_at_once([pool.close] * 3) == [None] * 3
    assert len(handled) == 2
    with mq.consumer("g") as consumer:
        rest = consumer.poll()
    assert len(rest) == 38
    assert {m.delivery_attempt for m in rest} == {1}


def test_a_graceful_stop_takes_nothing_from_a_worker_that_is_still_at_it(mq):
    """The others have finished long before; their leaving must not move its partitions."""
    fill(mq, 0, partitions=8)
    mq.publish_many("t", [Message(number) for number in range(80)])
    begun, go_on = threading.Event(), threading.Event()
    handled = []

    def handle(message):
        if message.partition == 5 and message.offset == 0:
            begun.set()
            assert go_on.wait(WATCHDOG)
        handled.append((message.value, message.delivery_attempt))

    pool = mq.workers("g", handle, concurrency=8)
    assert begun.wait(WATCHDOG)
    pool.stop()
    mq.list_topics()  # whatever was scheduled before has been run
    go_on.set()
    pool.close()
    rest = []
    with mq.workers("g", lambda m: rest.append((m.value, m.delivery_attempt))):
        mq.wait_idle()
    assert sorted(handled + rest) == [(number, 1) for number in range(80)]


def test_the_end_of_the_broker_is_graceful_too(mq):
    fill(mq, 40)
    begun, go_on = threading.Event(), threading.Event()

    def handle(_message):
        begun.set()
        assert go_on.wait(WATCHDOG)
        mq.publish("t", Message("still taken"))

    pool = mq.workers("g", handle, concurrency=1)
    assert begun.wait(WATCHDOG)
    with Crew() as crew:
        crew.start(mq.close)
        go_on.set()
    assert pool.wait(WATCHDOG)
    assert pool.failures == []
    with pytest.raises(BrokerClosedError):
        mq.workers("g", handle)
    assert mq.take_handler_failures() == []


def test_a_handler_may_close_its_pool_and_its_broker(mq):
    fill(mq, 10)
    pools = []
    made = threading.Event()

    def handle(_message):
        assert made.wait(WATCHDOG)
        pools[0].close()

    pools.append(mq.workers("g", handle))
    made.set()
    assert pools[0].wait(WATCHDOG)
    assert pools[0].failures == []


def test_the_deletion_of_its_group_ends_the_pool(mq):
    fill(mq)
    pool = mq.workers("g", print)
    mq.delete_consumer_group("g")
    assert pool.wait(WATCHDOG)
    assert pool.stopped_by is None


def test_a_worker_that_was_expelled_joins_anew(manual_mq, clock):
    mq = manual_mq
    fill(mq, 4, partitions=1)
    begun, go_on = threading.Event(), threading.Event()
    handled = []

    def handle(message):
        if not handled:
            begun.set()
            assert go_on.wait(WATCHDOG)
        handled.append((message.value, message.delivery_attempt))

    with mq.workers("g", handle, concurrency=1, max_poll_interval=60.0):
        assert begun.wait(WATCHDOG)
        clock.advance(61.0)
        assert mq.get_group_info("g").members == ()
        go_on.set()
        mq.wait_idle()
    assert handled[0] == (0, 1)
    assert [value for value, _ in handled[1:]] == [0, 1, 2, 3]


def test_an_at_most_once_pool_is_idle_when_its_handlers_are(mq):
    fill(mq, 100, delivery="at_most_once")
    handled = []
    with mq.workers("g", handled.append):
        mq.wait_idle()
        assert len(handled) == 100


# Coroutine functions


def test_a_coroutine_function_gets_a_loop_of_the_pool(mq):
    fill(mq, 200)
    handled, threads = [], set()

    async def handle(message):
        await asyncio.sleep(0)
        threads.add(threading.current_thread().name)
        handled.append(message)

    before = threading.active_count()
    with mq.workers("g", handle, concurrency=20):
        assert threading.active_count() <= before + 2  # the loop, and the clock of the broker
        mq.wait_idle()
    assert sorted(m.value for m in handled) == list(range(200))
    assert in_order(handled)
    assert len(threads) == 1


def test_a_coroutine_function_runs_in_the_running_loop(mq):
    fill(mq, 50)

    async def main():
        loop = asyncio.get_running_loop()
        loops, done = set(), asyncio.Event()

        async def handle(message):
            loops.add(asyncio.get_running_loop())
            if message.value == 49:
                raise ValueError("last")

        async with mq.workers("g", handle, concurrency=3) as pool:
            await asyncio.to_thread(mq.wait_idle, expected=ValueError)
            assert pool.failures_total == 3
            done.set()
        assert loops == {loop}
        assert mq.get_group_info("g").members == ()
        pool.close()

    asyncio.run(asyncio.wait_for(main(), WATCHDOG))


def test_a_loop_that_ends_takes_its_pool_along_and_loses_nothing(mq):
    fill(mq, 10, partitions=1)

    async def main():
        begun = asyncio.Event()

        async def handle(_message):
            begun.set()
            await asyncio.sleep(3600)

        pool = mq.workers("g", handle, concurrency=1)
        await begun.wait()
        return pool

    pool = asyncio.run(asyncio.wait_for(main(), WATCHDOG))
    assert pool.wait(WATCHDOG)
    assert pool.failures == []
    with mq.consumer("g") as consumer:
        assert [(m.value, m.delivery_attempt) for m in consumer.poll()] == [
            (number, 1) for number in range(10)
        ]


def test_a_plain_function_that_returns_a_coroutine_is_a_mistake_that_shows(mq):
    fill(mq, 1, max_failures=1)

    async def work():
        pass

    with mq.workers("g", lambda _message: work()):
        with pytest.raises(HandlerFailedError, match="async def") as caught:
            mq.wait_idle()
        assert isinstance(caught.value.__cause__, InvalidTypeError)


# Executors


def square(message):
    if message.value == 5:
        raise ValueError("five")


def die(_message):
    os._exit(1)


def test_a_process_pool_does_the_work(mq):
    fill(mq, 20, max_failures=1)
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        with mq.workers("g", square, executor=executor, concurrency=2) as pool:
            mq.wait_idle(expected=ValueError)
        assert [repr(f.error) for f in pool.failures] == ["ValueError('five')"]


def test_a_broken_process_pool_stops_the_pool_and_loses_nothing(mq):
    fill(mq, 5)
    with concurrent.futures.ProcessPoolExecutor(1) as executor:
        pool = mq.workers("g", die, executor=executor)
        assert pool.wait(WATCHDOG)
        assert "gave up" in str(pool.stopped_by) or "no more work" in str(pool.stopped_by)
        assert pool.failures == []
    with mq.consumer("g") as consumer:
        assert [m.delivery_attempt for m in consumer.poll()] == [1] * 5


def test_what_cannot_work_in_an_executor_is_refused(mq):
    fill(mq)

    async def handle(_message):
        pass

    for kind, function, rule in (
        (concurrent.futures.ThreadPoolExecutor, handle, "event loop"),
        (concurrent.futures.ProcessPoolExecutor, lambda _: None, "importable"),
    ):
        with kind(1) as executor, pytest.raises(InvalidArgumentError, match=rule):
            mq.workers("g", function, executor=executor)
    assert mq.get_group_info("g").members == ()


# subscriber


def test_subscriber_makes_group_and_pool_and_leaves_the_function_alone(mq):
    mq.create_topic("t", num_partitions=2)
    handled = []

    @mq.subscriber("t", max_failures=1, concurrency=2)
    def billing(message):
        handled.append(message.value)

    @mq.subscriber("t", group="audit")
    async def other(message):
        handled.append(-message.value)

    assert mq.list_consumer_groups() == ["billing", "audit"]
    assert mq.get_group_info("billing").config.max_failures == 1
    mq.publish_many("t", [Message(1), Message(2)])
    mq.wait_idle()
    assert sorted(handled) == [-2, -1, 1, 2]
    billing(Message(3))
    assert handled[-1] == 3


def test_subscriber_refuses_what_cannot_be(mq):
    mq.create_topic("t")
    mq.create_topic("u")
    mq.create_consumer_group("billing", "u")
    with pytest.raises(UnknownTopicError):
        mq.subscriber("nope")
    with pytest.raises(InvalidArgumentError, match="reads topic 'u'"):
        mq.subscriber("t", "billing")(print)
    with pytest.raises(InvalidTypeError):
        mq.subscriber("t", "new")(None)
    assert mq.list_consumer_groups() == ["billing"]


# wait_idle


def test_wait_idle_follows_work_through_topics(mq):
    for name in ("a", "b", "c"):
        mq.create_topic(name, num_partitions=2)
        mq.create_consumer_group(name, name)
    done = []
    with (
        mq.workers("a", lambda m: mq.publish("b", Message(m.value))),
        mq.workers("b", lambda m: mq.publish("c", Message(m.value))),
        mq.workers("c", lambda m: done.append(m.value)),
    ):
        for _ in range(20):
            done.clear()
            mq.publish_many("a", [Message(number) for number in range(20)])
            mq.wait_idle()
            assert sorted(done) == list(range(20))


def test_wait_idle_says_what_is_left(mq):
    fill(mq, 3, partitions=1)
    with pytest.raises(NotIdleError, match=r"'g' \(no members.*partition 0: lag 3, 0 in flight"):
        mq.wait_idle(timeout=0.01)
    mq.create_topic("u")
    mq.wait_idle("u")
    mq.create_consumer_group("h", "u")
    mq.wait_idle(group="h")
    with mq.consumer("g") as consumer:
        consumer.poll()
        with pytest.raises(NotIdleError, match="3 in flight"):
            mq.wait_idle(timeout=0.01)
        consumer.commit()
    mq.wait_idle()
    for call in (lambda: mq.wait_idle("nope"), lambda: mq.wait_idle(group="nope")):
        with pytest.raises((UnknownTopicError, UnknownGroupError)):
            call()


def test_wait_idle_fails_fast_with_what_a_handler_raised(mq):
    fill(mq, 3, retry_backoff=3600.0)

    def handle(_message):
        raise ValueError("no")

    with mq.workers("g", handle):
        with pytest.raises(HandlerFailedError, match="ValueError") as caught:
            mq.wait_idle(timeout=WATCHDOG, expected=KeyError)
        assert isinstance(caught.value.__cause__, ValueError)


def test_wait_idle_ends_with_the_broker(mq):
    fill(mq, 3)
    with Crew() as crew:

        def wait():
            with pytest.raises(BrokerClosedError):
                mq.wait_idle(timeout=WATCHDOG)

        crew.start(wait)
        mq.close()
