"""`Promise` inside asyncio: any loop, any thread, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import gc
from functools import partial

import pytest
from support import WATCHDOG, Crew

from dmq_actors import DMQError, Message
from dmq_actors._runtime.promise import Abandonment, Promise, gather


async def read(promise):
    return await promise


def test_await_gives_an_answer_that_is_there():
    assert asyncio.run(read(Promise.resolved(1))) == 1


def test_await_waits_for_another_thread_without_one_of_its_own():
    async def main():
        promise = Promise()
        with Crew() as crew:
            crew.start(promise.resolve, 2)
            return await asyncio.wait_for(promise, WATCHDOG)

    assert asyncio.run(main()) == 2


def test_await_raises_what_was_answered():
    async def main():
        promise = Promise()
        asyncio.get_running_loop().call_soon(promise.fail, DMQError("e"))
        with pytest.raises(DMQError, match="e"):
            await promise
        with pytest.raises(DMQError, match="e"):
            await promise

    asyncio.run(main())


def test_await_finishes_the_answer_once_for_all_readers():
    async def main():
        promise = Promise()
        tasks = [asyncio.create_task(read(promise)) for _ in range(5)]
        await asyncio.sleep(0)
        promise.resolve(1, lambda value: [value])
        return await asyncio.gather(*tasks)

    answers = asyncio.run(main())
    assert answers == [[1]] * 5
    assert all(answer is answers[0] for answer in answers)


def test_one_promise_is_awaited_by_several_loops_and_threads():
    promise = Promise()
    answers = []
    with Crew() as crew:
        for _ in range(4):
            crew.start(lambda: answers.append(asyncio.run(read(promise))))
            crew.start(lambda: answers.append(promise.get(timeout=WATCHDOG)))
        promise.resolve("all")
    assert answers == ["all"] * 8


def test_ten_thousand_promises_are_awaited_at_once():
    async def main():
        promises = [Promise() for _ in range(10_000)]
        with Crew(30) as crew:
            for start in range(4):
                part = promises[start::4]
                crew.start(lambda part=part: [promise.resolve(1) for promise in part])
            answers = await asyncio.gather(*map(read, promises))
        return sum(answers)

    assert asyncio.run(main()) == 10_000


def test_everything_made_of_a_promise_can_be_awaited():
    async def main():
        source = Promise()
        made = [
            source.map(len),
            source.filter(bool),
            source.join(Promise.resolved(1)),
            source.reduce(lambda a, b: a + b),
            gather([source, source]),
        ]
        asyncio.get_running_loop().call_soon(source.resolve, [0, 1])
        return [await asyncio.wait_for(promise, 2) for promise in made]

    assert asyncio.run(main()) == [2, [1], [[0, 1], 1], 1, [[0, 1], [0, 1]]]


def test_the_answer_to_a_stop_can_be_awaited(mq):
    ref = mq.coordinator.actor_ref

    async def main():
        return await asyncio.wait_for(ref.stop(block=False), 2)

    assert asyncio.run(main()) is True


def test_a_cancelled_task_abandons_its_promise():
    calls = []

    async def main():
        promise = Promise()
        promise.when_abandoned(Abandonment(partial(calls.append, "abandoned")))
        task = asyncio.create_task(read(promise))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        promise.resolve()  # too late, and no error

    asyncio.run(main())
    assert calls == ["abandoned"]


def test_a_task_that_is_cancelled_with_the_answer_on_its_way_abandons_it():
    calls = []

    async def main():
        promise = Promise()
        promise.when_abandoned(Abandonment(partial(calls.append, "abandoned")))
        task = asyncio.create_task(read(promise))
        await asyncio.sleep(0)
        promise.resolve("unread")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert calls == ["abandoned"]


def test_a_time_out_of_asyncio_abandons_as_well():
    calls = []

    async def main():
        promise = Promise()
        promise.when_abandoned(Abandonment(partial(calls.append, "abandoned")))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(promise, 0.001)

    asyncio.run(main())
    assert calls == ["abandoned"]


def test_a_loop_that_is_closed_while_it_waits_hurts_nobody():
    promise = Promise()
    loop = asyncio.new_event_loop()
    task = loop.create_task(read(promise))
    loop.run_until_complete(asyncio.sleep(0, loop))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    waiting = promise.__await__
    loop.run_until_complete(open_and_leave(waiting))
    loop.close()
    assert promise.resolve(1) is True
    assert promise.get() == 1
    gc.collect()


async def open_and_leave(start):
    next(start())


def test_a_loop_awaits_what_an_actor_answers(mq):
    async def main():
        coordinator = mq.coordinator
        await coordinator.create_topic("t", 2)
        await coordinator.create_consumer_group("g", "t")
        await coordinator.add_consumer("g", "c")
        polled = asyncio.create_task(read(mq.group_actor("g").poll("c", 10, WATCHDOG)))
        stored = await asyncio.gather(
            *(read(coordinator.publish("t", Message(number))) for number in range(10))
        )
        got = await polled
        while len(got) < len(stored):
            got += await mq.group_actor("g").poll("c", 10, WATCHDOG)
        return sorted(message.value for message in got)

    assert asyncio.run(main()) == list(range(10))


def test_a_poll_whose_task_is_cancelled_at_once_takes_nothing(mq):
    """Cancelled before the actor has heard of it, too."""
    mq.create_topic("t")
    mq.create_consumer_group("g", "t", "exactly_once")
    mq.add_consumer("g", "c")

    async def main():
        task = asyncio.create_task(read(mq.group_actor("g").poll("c", 10, None)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for number in range(50):
        asyncio.run(main())
        mq.publish("t", Message(number))
        assert [message.value for message in mq.poll("g", "c", timeout=WATCHDOG)] == [number]
