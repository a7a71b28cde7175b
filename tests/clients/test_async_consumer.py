"""`AsyncConsumer`: the same consumer in event loops: no thread, nothing blocked, nothing lost."""

from __future__ import annotations

import asyncio
import threading

import pytest
from support import WATCHDOG, HeldActor, all_at_once

from dmq_actors import (
    AckResult,
    ConcurrentUseError,
    ConsumerClosedError,
    ConsumerExistsError,
    ConsumerExpelledError,
    InvalidTypeError,
    Message,
    UnknownGroupError,
)


def fill(mq, count, *, partitions=1, **options):
    mq.create_topic("t", num_partitions=partitions)
    mq.create_consumer_group("g", "t", **options)
    for number in range(count):
        mq.publish("t", Message(number), partition=number % partitions)


def values(messages):
    return [message.value for message in messages]


def run(main):
    return asyncio.run(asyncio.wait_for(main(), WATCHDOG))


def test_every_call_of_a_consumer_can_be_awaited(mq):
    fill(mq, 6, partitions=2, max_failures=1)

    async def main():
        async with mq.consumer("g", consumer_id="a") as consumer:
            assert (consumer.group_id, consumer.topic, consumer.consumer_id) == ("g", "t", "a")
            messages = await consumer.poll(timeout=1.0)
            assert len(messages) == 6
            assert await consumer.ack(messages[0]) is AckResult.COMPLETED
            assert await consumer.ack_many(messages[1:3]) == [AckResult.COMPLETED] * 2
            assert await consumer.nack(messages[3], error="no") is AckResult.DEAD_LETTERED
            await consumer.give_back(messages[4:5])
            assert [m.delivery_attempt for m in await consumer.poll()] == [1]
            await consumer.commit()
            assert await consumer.lag() == {0: 0, 1: 0}
            assert await consumer.committed(0) == await consumer.position(0) == 3
            assert await consumer.seek(0, 1) == 1
            assert await consumer.seek_to_beginning(1) == {1: 0}
            assert await consumer.seek_to_timestamp(0.0) == {0: 0, 1: 0}
            assert await consumer.seek_to_end() == {0: 3, 1: 3}
            await consumer.pause(0)
            assert consumer.paused == [0]
            await consumer.resume(0)
            assert await consumer.poll() == []
        assert mq.get_group_info("g").members == ()
        with pytest.raises(ConsumerClosedError):
            await consumer.poll()

    run(main)


def test_iteration_ends_when_it_is_woken_from_another_thread(mq):
    fill(mq, 3)

    async def main():
        seen = []
        async with mq.consumer("g") as consumer:
            async for message in consumer:
                seen.append(message.value)
                await consumer.ack(message)
                if message.value == 2:
                    threading.Thread(target=consumer.wakeup).start()
        return seen

    assert run(main) == [0, 1, 2]


def test_a_cancelled_poll_loses_no_message(mq):
    fill(mq, 0)

    async def main():
        async with mq.consumer("g") as consumer:
            for number in range(50):
                task = asyncio.create_task(consumer.poll(timeout=None))
                await asyncio.sleep(0)
                mq.publish("t", Message(number))
                task.cancel()
                got = []
                try:
                    got = await task
                except asyncio.CancelledError:
                    got = await consumer.poll(timeout=WATCHDOG)
                assert [(m.value, m.delivery_attempt) for m in got] == [(number, 1)]
                await consumer.commit()

    run(main)


def test_a_cancelled_iteration_can_go_on(mq):
    fill(mq, 0)

    async def main():
        async with mq.consumer("g") as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(consumer)
            mq.publish("t", Message("x"))
            assert (await anext(consumer)).value == "x"

    run(main)


def test_a_task_that_is_cancelled_leaves_the_group(mq):
    fill(mq, 0)

    joined = asyncio.Event()

    async def work():
        async with mq.consumer("g", on_assigned=lambda _: joined.set()) as consumer:
            async for _ in consumer:
                pass

    async def main():
        task = asyncio.create_task(work())
        await asyncio.wait_for(joined.wait(), WATCHDOG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert mq.get_group_info("g").members == ()

    run(main)


def test_joining_that_is_cancelled_or_refused_leaves_no_member(mq):
    fill(mq, 0)

    async def main():
        async def enter():
            async with mq.consumer("g"):
                pass

        with HeldActor(mq.group_actor("g").actor_ref):
            task = asyncio.create_task(enter())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with mq.consumer("g", consumer_id="a"):
            with pytest.raises(ConsumerExistsError):
                async with mq.consumer("g", consumer_id="a"):
                    pass
            assert mq.get_group_info("g").members == ("a",)

    run(main)
    assert mq.get_group_info("g").members == ()


def test_two_tasks_in_one_consumer_get_a_clear_error(mq):
    fill(mq, 0)

    async def main():
        async with mq.consumer("g") as consumer:
            first = asyncio.create_task(consumer.poll(timeout=None), name="first")
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError, match="task first"):
                await consumer.poll()
            consumer.wakeup()
            assert await first == []

    run(main)


def test_close_in_another_task_ends_the_poll(mq):
    fill(mq, 0)
    revoked = []

    async def main():
        async with mq.consumer("g", on_revoked=revoked.append) as consumer:
            await consumer.poll()
            first = asyncio.create_task(consumer.poll(timeout=None))
            await asyncio.sleep(0)
            await consumer.close()
            with pytest.raises(ConsumerClosedError):
                await first
            assert [m async for m in consumer] == []

    run(main)
    assert revoked == [[0]]


def test_listeners_may_be_coroutine_functions(mq):
    fill(mq, 4)
    heard = []

    async def main():
        async def assigned(partitions):
            await asyncio.sleep(0)
            await consumer.seek(partitions[0], 2)
            heard.append(("assigned", partitions, asyncio.current_task()))

        async def revoked(partitions):
            await consumer.commit()
            heard.append(("revoked", partitions, asyncio.current_task()))

        async with mq.consumer("g", on_assigned=assigned, on_revoked=revoked) as consumer:
            assert values(await consumer.poll()) == [2, 3]
        me = asyncio.current_task()
        assert heard == [("assigned", [0], me), ("revoked", [0], me)]

    run(main)
    assert mq.get_consumer_lag("g") == {0: 0}


def test_a_coroutine_function_as_listener_of_a_thread_is_refused(mq):
    fill(mq, 1)

    async def assigned(_partitions):
        pass

    consumer = mq.consumer("g", on_assigned=assigned)
    with pytest.raises(InvalidTypeError, match="async with"):
        consumer.poll()
    consumer.close()


def test_consumers_of_one_group_in_several_loops(mq):
    fill(mq, 400, partitions=4)

    async def work():
        seen = []
        async with mq.consumer("g", max_poll=10) as consumer:
            while messages := await consumer.poll(timeout=0.2):
                seen += values(messages)
                await consumer.ack_many(messages)
        return seen

    seen = all_at_once([lambda: asyncio.run(work())] * 4)
    assert sorted({value for part in seen for value in part}) == list(range(400))
    assert sum(mq.get_consumer_lag("g").values()) == 0


def test_expulsion_and_the_end_of_the_group_reach_those_who_wait(mq):
    fill(mq, 0)

    async def main():
        async with mq.consumer("g", consumer_id="a") as consumer:
            waiting = asyncio.create_task(consumer.poll(timeout=None))
            await asyncio.sleep(0)
            mq.remove_consumer("g", "a")
            with pytest.raises(ConsumerExpelledError):
                await waiting
        async with mq.consumer("g") as consumer:
            waiting = asyncio.create_task(consumer.poll(timeout=None))
            await asyncio.sleep(0)
            mq.delete_consumer_group("g")
            with pytest.raises(UnknownGroupError):
                await waiting

    run(main)


def test_five_hundred_waiting_consumers_need_no_thread(mq):
    fill(mq, 0, partitions=10)

    async def wait(gate):
        async with mq.consumer("g") as consumer:
            await consumer.poll()
            gate.release()
            return values(await consumer.poll(timeout=None))

    async def main():
        gate = asyncio.Semaphore(0)
        before = threading.active_count() + 1  # the clock of the broker, which serves all timers
        tasks = [asyncio.create_task(wait(gate)) for _ in range(500)]
        for _ in tasks:
            await gate.acquire()
        assert threading.active_count() <= before
        for number in range(10):
            mq.publish("t", Message(number), partition=number)
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert done
        for task in waiting:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(main)
    assert mq.get_group_info("g").members == ()


@pytest.mark.parametrize("timeout", [0.0, 0.05])
def test_a_poll_that_finds_nothing_ends_in_time(mq, timeout):
    fill(mq, 0)

    async def main():
        async with mq.consumer("g") as consumer:
            return await consumer.poll(timeout=timeout)

    assert run(main) == []
