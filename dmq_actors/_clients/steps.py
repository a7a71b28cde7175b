"""Steps: work that waits for answers, written once for threads and for event loops.

A generator yields what it waits for, with a bound in seconds, and is sent the answer. `run` waits
in the calling thread, `run_async` in the running loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, TypeAlias, TypeVar

from dmq_actors._runtime.promise import Promise
from dmq_actors.errors import BrokerTimeoutError, InvalidTypeError

T = TypeVar("T")

Wait: TypeAlias = "tuple[Promise[Any] | Awaitable[Any], float | None]"
Steps: TypeAlias = Generator[Wait, Any, T]


def run(steps: Steps[T]) -> T:
    """Take the steps, waiting in this thread."""
    try:
        wanted, timeout = next(steps)
        while True:
            try:
                answer = _wait(wanted, timeout)
            except BaseException as error:  # noqa: BLE001  # the generator's to handle
                wanted, timeout = steps.throw(error)
            else:
                wanted, timeout = steps.send(answer)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def run_async(steps: Steps[T]) -> T:
    """Take the steps, waiting in the running loop."""
    try:
        wanted, timeout = next(steps)
        while True:
            try:
                answer = await _wait_in_loop(wanted, timeout)
            except BaseException as error:  # noqa: BLE001  # the generator's to handle
                wanted, timeout = steps.throw(error)
            else:
                wanted, timeout = steps.send(answer)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def _wait(wanted: Promise[Any] | Awaitable[Any], timeout: float | None) -> Any:
    if not isinstance(wanted, Promise):
        getattr(wanted, "close", int)()  # else the coroutine warns that nobody awaited it
        raise InvalidTypeError(
            "a listener that is a coroutine function needs an event loop; "
            "use `async with mq.consumer(...)`, or give a plain function"
        )
    try:
        return wanted.get(timeout=timeout)
    except BaseException:  # a time-out, a Ctrl-C: nobody will read the answer
        wanted.abandon()
        raise


async def _wait_in_loop(wanted: Promise[Any] | Awaitable[Any], seconds: float | None) -> Any:
    bound = asyncio.timeout(seconds)
    try:
        async with bound:
            return await wanted
    except TimeoutError:
        if not bound.expired():
            raise
        raise BrokerTimeoutError(
            f"no answer within {seconds} s; the outcome is unknown: the call may still take effect"
        ) from None
