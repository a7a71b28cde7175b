"""`Producer`: futures at once, batches, order, bounds, failures alone, and every end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from textwrap import dedent

import pytest
from support import WATCHDOG, Crew, all_at_once

from dmq_actors import (
    BlockingInActorError,
    BrokerClosedError,
    BrokerForkedError,
    BrokerTimeoutError,
    InvalidArgumentError,
    InvalidTypeError,
    Message,
    MessageQueue,
    MessageTooLargeError,
    ProducerClosedError,
    QueueFullError,
    SendFuture,
    UnknownTopicError,
    events,
)

posix = pytest.mark.skipif(os.name != "posix", reason="needs fork")


class Held:
    """Holds the dispatcher of a broker, so that nothing is stored meanwhile."""

    def __init__(self, mq):
        self._free, entered = threading.Event(), threading.Event()

        def hold():
            entered.set()
            assert self._free.wait(WATCHDOG)

        mq._broker.run_soon(hold)
        assert entered.wait(WATCHDOG)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._free.set()


def log_of(mq, topic, partition=0):
    return [m.value for m in mq.partition_actor(topic, partition).read(0, 10**6).get(timeout=10)]


def stored_count(mq, topic):
    return mq.get_topic_info(topic).message_count


def test_a_future_gives_the_stored_message(mq):
    mq.create_topic("t", 2)
    with mq.producer("t") as producer:
        future = producer.send(Message([1], key="k", headers={"a": "b"}), partition=1)
        assert isinstance(future, concurrent.futures.Future)
        stored = future.result(timeout=WATCHDOG)
        assert (stored.topic, stored.partition, stored.offset, stored.value) == ("t", 1, 0, [1])
        stored.value.append(2)  # a copy of what is in the log
        assert log_of(mq, "t", 1) == [[1]]
        assert future.done()
        assert not future.running()
        assert not future.cancel()
        assert future.exception() is None


def test_shared_values_come_back_as_they_are(mq):
    mq.create_topic("t", share_values=True)
    value = [1]
    with mq.producer("t") as producer:
        assert producer.send(Message(value)).result(WATCHDOG).value is value


def test_a_producer_without_a_topic_wants_one_for_each_message(mq):
    mq.create_topic("a")
    mq.create_topic("b")
    with mq.producer() as producer:
        futures = [producer.send(Message(n), topic="ab"[n % 2]) for n in range(10)]
        with pytest.raises(InvalidTypeError, match="topic"):
            producer.send(Message(1))
    assert [f.result().topic for f in futures] == list("ab" * 5)
    assert log_of(mq, "a") == [0, 2, 4, 6, 8]


def test_messages_linger_until_the_time_is_over(manual_mq, clock):
    manual_mq.create_topic("t")
    with manual_mq.producer("t", linger=1.0) as producer:
        first = producer.send(Message(1))
        clock.advance(0.9)
        second = producer.send(Message(2))
        assert stored_count(manual_mq, "t") == 0
        clock.advance(0.1)
        assert stored_count(manual_mq, "t") == 2
        assert first.done()
        assert second.done()
        third = producer.send(Message(3))
        clock.advance(0.99)
        assert not third.done()
        clock.advance(0.01)
        assert stored_count(manual_mq, "t") == 3


def test_a_timer_of_a_batch_that_went_early_does_not_cut_the_next_one_short(manual_mq, clock):
    manual_mq.create_topic("t")
    with manual_mq.producer("t", linger=1.0, batch_size=2) as producer:
        producer.send(Message(1))
        clock.advance(0.5)
        producer.send(Message(2)).result(WATCHDOG)
        producer.send(Message(3))
        clock.advance(0.5)  # the timer of the first
        assert stored_count(manual_mq, "t") == 2
        clock.advance(0.5)
        assert stored_count(manual_mq, "t") == 3


def test_a_full_batch_goes_at_once_and_so_does_what_somebody_waits_for(manual_mq):
    manual_mq.create_topic("t")
    with manual_mq.producer("t", linger=60.0, batch_size=3) as producer:
        for number in range(3):
            producer.send(Message(number))
        assert stored_count(manual_mq, "t") == 3
        assert producer.send(Message(3)).result(WATCHDOG).offset == 3
        assert producer.send(Message(4)).exception(WATCHDOG) is None
        producer.send(Message(5))
        producer.flush(WATCHDOG)
        assert producer.in_flight == 0
        assert stored_count(manual_mq, "t") == 6


def test_without_linger_nothing_waits(manual_mq):
    manual_mq.create_topic("t")
    with manual_mq.producer("t", linger=0) as producer:
        for number in range(3):
            producer.send(Message(number))
            assert stored_count(manual_mq, "t") == number + 1


def test_each_thread_keeps_its_order_per_key_through_everything_that_publishes(mq):
    """Seeded: producers, publish and publish_many in turn, on one key for each thread."""
    mq.create_topic("t", 3)
    one, two = mq.producer("t", linger=60.0, batch_size=7), mq.producer(linger=0.0)
    sent = defaultdict(list)

    def work(name):
        rng = random.Random(name)
        for number in range(300):
            message = Message((name, number), key=name)
            sent[name].append(number)
            match rng.randrange(8):
                case 0:
                    mq.publish("t", message)
                case 1:
                    mq.publish_many("t", [message])
                case 2 | 3:
                    two.send(message, topic="t")
                case _:
                    one.send(message)

    with Crew() as crew:
        for name in ("a", "b", "c", "d"):
            crew.start(work, name)
    assert one.close() == two.close() == 0
    found = defaultdict(list)
    for partition in range(3):
        for name, number in log_of(mq, "t", partition):
            found[name].append(number)
    assert found == sent


def test_too_much_in_flight_waits_and_then_says_so(mq):
    mq.create_topic("t")
    with mq.producer("t", linger=60.0, max_in_flight=2, max_block=0.01) as producer:
        with Held(mq):
            futures = [producer.send(Message(n)) for n in range(2)]
            with pytest.raises(QueueFullError, match="max_in_flight"):
                producer.send(Message(2))
            assert producer.in_flight == 2
        assert [f.result(WATCHDOG).offset for f in futures] == [0, 1]
        assert producer.send(Message(2)).result(WATCHDOG).offset == 2


def test_a_sender_that_waits_goes_on_when_there_is_room(mq):
    mq.create_topic("t")
    with mq.producer("t", linger=60.0, max_in_flight=3) as producer:
        for number in range(100):
            producer.send(Message(number))
            assert producer.in_flight <= 3
    assert log_of(mq, "t") == list(range(100))


def test_an_event_loop_never_waits_for_room(mq):
    mq.create_topic("t")

    async def main():
        async with mq.producer("t", max_in_flight=1) as producer:
            with Held(mq):
                future = producer.send(Message(1))
                with pytest.raises(QueueFullError, match="await"):
                    producer.send(Message(2))
            await future
            return await producer.send(Message(2))

    assert asyncio.run(main()).offset == 1


def test_a_message_that_is_too_large_fails_alone(mq):
    mq.create_topic("t", retention_bytes=100)
    with mq.producer("t", linger=60.0) as producer:
        futures = [producer.send(Message("x" * size)) for size in (10, 200, 20, 300, 30)]
    assert [type(f.exception()) for f in futures] == [
        *(type(None), MessageTooLargeError, type(None), MessageTooLargeError, type(None))
    ]
    assert [futures[at].result().offset for at in (0, 2, 4)] == [0, 1, 2]
    with pytest.raises(MessageTooLargeError):
        futures[1].result()
    assert futures[1].exception() is not futures[3].exception()


def test_the_topic_is_deleted_while_messages_linger(mq):
    mq.create_topic("t")
    mq.create_topic("other")
    with mq.producer(linger=60.0) as producer:
        lost = producer.send(Message(1), topic="t")
        kept = producer.send(Message(2), topic="other")
        mq.delete_topic("t")
        mq.create_topic("t")
        new = producer.send(Message(3), topic="t")
    assert isinstance(lost.exception(), UnknownTopicError)
    assert kept.result().offset == new.result().offset == 0
    assert log_of(mq, "t") == [3]


def test_what_is_wrong_with_a_message_is_raised_by_send(mq):
    mq.create_topic("t")
    with mq.producer("t") as producer:
        for wrong in ("no message", Message(1, key=7), Message(threading.Lock())):
            with pytest.raises(InvalidArgumentError):
                producer.send(wrong)
        assert producer.in_flight == 0


def test_wait_and_as_completed_of_two_threads_over_mixed_batches(mq):
    mq.create_topic("t", 3)
    with mq.producer("t", batch_size=3, linger=0.001) as producer:
        for _ in range(20):
            futures = [producer.send(Message(n)) for n in range(20)]
            own = concurrent.futures.Future()
            own.set_result(None)
            mixed, other = [*futures[::2], own], [own, *futures[::-1]]
            done = all_at_once(
                [
                    lambda: concurrent.futures.wait(mixed, WATCHDOG),
                    lambda: concurrent.futures.wait(other, WATCHDOG),
                    lambda: set(concurrent.futures.as_completed(other, WATCHDOG)),
                ]
            )
            assert done[0].done == set(mixed)
            assert done[1].done == done[2] == set(other)


def test_callbacks_run_once_and_what_they_raise_goes_no_further(mq):
    mq.create_topic("t")
    calls, seen = [], threading.Event()

    def callback(future):
        calls.append(future.result().offset)
        raise SystemExit

    with mq.producer("t", linger=60.0) as producer:
        future = producer.send(Message(1))
        future.add_done_callback(callback)
        future.add_done_callback(lambda _: seen.set())
        producer.flush()
        assert seen.wait(WATCHDOG)
        future.add_done_callback(lambda f: calls.append(f))
    assert calls == [0, future]


def test_a_reader_that_wakes_up_takes_nobody_elses_call_with_it(mq):
    mq.create_topic("t")
    with mq.producer("t", linger=0) as producer:
        with Held(mq):
            future = producer.send(Message(1))
            told = []
            forgets = []

            def first_wakes_up():
                told.append("first")
                forgets[0]()  # as `settled_within` does in the reader's thread

            forgets.append(future._watch(first_wakes_up))
            future._watch(lambda: told.append("second"))
            future._watch(lambda: told.append("third"))
            last = threading.Event()
            future._watch(last.set)
        assert last.wait(WATCHDOG)
    assert told == ["first", "second", "third"]


def test_a_callback_may_send_but_not_wait(mq):
    mq.create_topic("t")
    outcomes, asked = [], threading.Event()

    def callback(_):
        try:
            following = producer.send(Message(2))
            outcomes.append(following)
            following.result()
        except Exception as error:
            outcomes.append(error)
        asked.set()

    with mq.producer("t", linger=60.0) as producer:
        producer.send(Message(1)).add_done_callback(callback)
        producer.flush()
        assert asked.wait(WATCHDOG)
        assert isinstance(outcomes[1], BlockingInActorError)
    assert outcomes[0].result().offset == 1


def test_a_future_can_be_awaited_in_several_loops_and_wrapped(mq):
    mq.create_topic("t")
    with mq.producer("t") as producer:
        future = producer.send(Message([1]))

        async def read():
            wrapped = await asyncio.wrap_future(future)
            stored = await asyncio.gather(*(producer.send(Message(n)) for n in range(100)))
            return (await future).offset, wrapped.offset, len(stored)

        assert all_at_once([lambda: asyncio.run(read())] * 3) == [(0, 0, 100)] * 3
    assert stored_count(mq, "t") == 301


def test_a_cancelled_await_leaves_the_message_alone(mq):
    mq.create_topic("t")

    async def main():
        async with mq.producer("t") as producer:
            with Held(mq):
                future = producer.send(Message(1))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(future), 0.001)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await future
            return await future

    assert asyncio.run(main()).offset == 0


def test_a_wait_that_is_too_short_says_that_the_outcome_is_unknown(mq):
    mq.create_topic("t")
    producer = mq.producer("t")
    with Held(mq):
        future = producer.send(Message(1))
        with pytest.raises(BrokerTimeoutError):
            future.result(timeout=0.001)
        with pytest.raises(BrokerTimeoutError, match="1 message"):
            producer.flush(timeout=0.001)
        assert producer.close(timeout=0.001) == 1
        assert asyncio.run(producer.aclose(timeout=0.001)) == 1
    assert future.result(WATCHDOG).offset == 0
    assert producer.close() == 0


def test_close_hands_over_refuses_and_may_be_repeated(mq):
    mq.create_topic("t")
    producer = mq.producer("t", linger=60.0)
    future = producer.send(Message(1))
    assert all_at_once([producer.close] * 4) == [0] * 4
    assert future.done()
    with pytest.raises(ProducerClosedError):
        producer.send(Message(2))
    assert "closed" in repr(producer)
    producer.flush()


def test_close_wakes_those_who_wait_for_room(mq):
    mq.create_topic("t")
    producer = mq.producer("t", max_in_flight=1)
    refused = []

    def send():
        with pytest.raises(ProducerClosedError):
            producer.send(Message(2))
        refused.append(True)

    with Held(mq):
        producer.send(Message(1))
        with Crew() as crew:
            crew.start(send)
            while not producer._outbox._waiting_for_room:
                time.sleep(0)
            producer.close(timeout=0)
    assert refused == [True]


def test_the_broker_closes_its_producers_first():
    mq = MessageQueue(call_timeout=WATCHDOG)
    mq.create_topic("t")
    producer = mq.producer("t", linger=60.0)
    futures = [producer.send(Message(n)) for n in range(10)]
    assert mq.close().clean
    assert [f.result(0).offset for f in futures] == list(range(10))
    with pytest.raises(BrokerClosedError):
        producer.send(Message(1))
    with pytest.raises(BrokerClosedError):
        mq.producer("t")
    assert producer.close() == 0


def test_a_close_without_time_fails_what_is_left():
    mq = MessageQueue(call_timeout=WATCHDOG)
    mq.create_topic("t")
    producer = mq.producer("t", linger=60.0)
    with Held(mq):
        future = producer.send(Message(1))
        assert not mq.close(timeout=0).clean
    assert mq.close().still_running == () or future.done()
    assert future.exception(WATCHDOG) is None  # its note was there before the end


def test_a_producer_that_is_forgotten_hands_over_what_it_holds(mq):
    mq.create_topic("t")
    producer = mq.producer("t", linger=60.0)
    futures = [producer.send(Message(n)) for n in range(3)]
    del producer
    gc.collect()
    assert [f._outbox is not None and f.result(WATCHDOG).offset for f in futures] == [0, 1, 2]


def test_a_producer_keeps_its_broker_alive():
    mq = MessageQueue(call_timeout=WATCHDOG)
    mq.create_topic("t")
    producer = mq.producer("t")
    owner = producer._owner
    del mq
    gc.collect()
    assert producer.send(Message(1)).result(WATCHDOG).offset == 0
    assert owner.close().clean


def test_failures_that_nobody_reads_are_logged_once_for_a_batch(mq, caplog):
    mq.create_topic("t", retention_bytes=10)
    with caplog.at_level(logging.WARNING, "dmq_actors"):
        producer = mq.producer("t", linger=60.0)
        read = producer.send(Message("y" * 99))
        for _ in range(3):
            producer.send(Message("x" * 99))
        assert isinstance(read.exception(WATCHDOG), MessageTooLargeError)
        assert producer.close() == 0
        del read
        gc.collect()
        mq.list_topics()  # behind what the dispatcher was given
    found = [record.dmq for record in caplog.records]
    assert found == [
        {
            "event": events.PRODUCER_SEND_FAILED,
            "topic": "t",
            "error": "MessageTooLargeError",
            "count": 3,
        }
    ]


@posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork_refuses(mq):
    mq.create_topic("t")
    producer = mq.producer("t", linger=60.0)
    future = producer.send(Message(1))
    with producer._outbox.lock:  # as if another thread held it
        pid = os.fork()
        if pid == 0:
            refused = 0
            for call in (lambda: producer.send(Message(2)), future.result, producer.flush):
                try:
                    call()
                except BrokerForkedError:
                    refused += 1
            os._exit(0 if refused == 3 and producer.close() == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert future.result(WATCHDOG).offset == 0
    producer.close()


def test_a_program_that_forgets_to_close_ends_at_once():
    program = dedent(
        """
        from dmq_actors import Message, MessageQueue
        mq = MessageQueue()
        mq.create_topic("t")
        producer = mq.producer("t", linger=600.0)
        future = producer.send(Message(1))
        future.add_done_callback(lambda f: print("stored", f.result().offset))
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stored 0\n", "")


def test_a_future_has_no_other_attributes(mq):
    mq.create_topic("t")
    with mq.producer("t") as producer:
        future = producer.send(Message(1))
        assert isinstance(future, SendFuture)
        assert not hasattr(future, "nothing")
