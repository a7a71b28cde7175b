"""`WorkerPool`: a handler, and the workers that call it for each message of a group."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Self

from dmq_actors import events
from dmq_actors._clients.crew import Crew
from dmq_actors._clients.steps import run
from dmq_actors._clients.worker import Worker
from dmq_actors._core.arguments import check_seconds
from dmq_actors._runtime.log import log
from dmq_actors._runtime.promise import Promise
from dmq_actors._runtime.ref import closed_error
from dmq_actors.errors import BrokerTimeoutError
from dmq_actors.info import HandlerFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dmq_actors._actors.broker import Broker
    from dmq_actors._clients.handler import Handler
    from dmq_actors._clients.reader import Reader
    from dmq_actors.messages import DeliveredMessage

_KEPT = 1000


class WorkerPool:
    """Workers that handle the messages of one group; made by `MessageQueue.workers`.

    Each worker is a member of the group with partitions of its own, so messages of one key are
    handled one after the other, in order. It works from when it is made until `close`, the end
    of the broker, or a `SystemExit` or `KeyboardInterrupt` of the handler.

    Thread safety:
        Every method may be called from any thread, `stop` from a signal handler too.

    Example:
        >>> from dmq_actors import Message, MessageQueue
        >>> with MessageQueue() as mq:
        ...     _ = mq.create_topic("orders")
        ...     mq.create_consumer_group("billing", "orders")
        ...     billed = []
        ...     with mq.workers("billing", lambda message: billed.append(message.value)):
        ...         _ = mq.publish("orders", Message("a book"))
        ...         mq.wait_idle()
        ...     billed
        ['a book']
    """

    ending_rank = 0

    def __init__(
        self,
        broker: Broker,
        group_id: str,
        handler: Handler,
        concurrency: int,
        join: Callable[[int], Reader],
    ) -> None:
        self._broker = broker
        self._group_id = group_id
        self._lock = threading.Lock()
        self._failures: deque[HandlerFailure] = deque(maxlen=_KEPT)
        self._failures_total = 0
        self._stopped_by: BaseException | None = None
        self._busy = concurrency
        self._all_finished: Promise[None] = Promise()
        self._workers: list[Worker] = []
        in_loop = handler.is_async and asyncio._get_running_loop() is not None  # noqa: SLF001
        try:
            for number in range(concurrency):
                worker = Worker(
                    handler, partial(join, number), self._failed, self._stop_because, self._finished
                )
                self._workers.append(worker)
                if not in_loop:
                    run(worker.joined())
            broker.clients.add(self, closed_error, hold=True)
        except BaseException:
            for worker in self._workers:
                worker.abandon()
            raise
        self._crew = Crew(
            f"dmq-worker-{group_id}",
            self._workers,
            is_async=handler.is_async,
            ended=partial(broker.clients.discard, self),
        )
        self._crew.start()

    def __repr__(self) -> str:
        working = len(self._crew.still_working())
        return f"<WorkerPool of group {self._group_id!r}: {working} at work>"

    @property
    def group_id(self) -> str:
        """The group it works for."""
        return self._group_id

    @property
    def failures(self) -> list[HandlerFailure]:
        """What the handler has raised, the last 1000; the oldest first."""
        with self._lock:
            return list(self._failures)

    @property
    def failures_total(self) -> int:
        """How often the handler has raised."""
        with self._lock:
            return self._failures_total

    @property
    def stopped_by(self) -> BaseException | None:
        """Why the pool ended by itself: a `SystemExit` of the handler, say. None if it did not."""
        with self._lock:
            return self._stopped_by

    # The end

    def stop(self) -> None:
        """Take no more messages; those in hand are finished. Safe in a signal handler: waits not.

        What was fetched and not begun is given back, not counted as an attempt.
        """
        self._broker.run_soon(self._crew.stop)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all workers have ended, for whatever reason; whether they have.

        In a worker itself, or in the loop that runs them, it does not wait.

        Args:
            timeout: seconds; None waits as long as it takes. Ctrl-C ends the wait.
        """
        return self._crew.wait(None if timeout is None else check_seconds("timeout", timeout))

    def close(self, timeout: float = 10.0) -> None:
        """`stop`, and wait for what is in hand. May be called again, and by several threads.

        In a worker itself, or in the loop that runs them, it does not wait: use ``async with``.

        Args:
            timeout: seconds to wait.

        Raises:
            BrokerTimeoutError: a handler takes longer; it goes on, and its result still counts.
        """
        seconds = check_seconds("timeout", timeout)
        self._crew.stop()
        if not self._crew.wait(seconds) and not self._crew.is_inside():
            raise self._late(seconds)

    async def aclose(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109  # as elsewhere
        """As `close`, in an event loop."""
        seconds = check_seconds("timeout", timeout)
        self._crew.stop()
        if not await self._crew.wait_in_loop(seconds):
            raise self._late(seconds)

    def _late(self, seconds: float) -> BrokerTimeoutError:
        return BrokerTimeoutError(
            f"{self._crew.still_working()} did not finish within {seconds:g} s; they go on, and "
            "end when their handler returns. Close again to wait for longer"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # What workers tell

    def _finished(self) -> Promise[None]:
        with self._lock:
            self._busy -= 1
            last = self._busy == 0
        if last:
            self._all_finished.resolve()
        return self._all_finished

    def _failed(self, message: DeliveredMessage, error: BaseException) -> None:
        failure = HandlerFailure(self._group_id, message, error)
        with self._lock:
            self._failures.append(failure)
            self._failures_total += 1
        self._broker.failures.record(failure)
        log.warning(
            events.HANDLER_FAILED,
            group=self._group_id,
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            attempt=message.delivery_attempt,
            exc_info=error,
        )

    def _stop_because(self, error: BaseException, message: DeliveredMessage | None) -> None:
        with self._lock:
            first = self._stopped_by is None
            self._stopped_by = self._stopped_by or error
        if message is not None:
            self._failed(message, error)
        if first:
            log.error(events.WORKERS_STOPPED, group=self._group_id, cause=repr(error))
        self.stop()

    # As a client of the broker

    def begin_end(self) -> None:
        """The broker closes."""
        self._crew.stop()

    def finish_end(self, deadline: float) -> list[str]:
        """The broker waits for what is in hand."""
        self._crew.wait(max(deadline - time.monotonic(), 0.0))
        return self._crew.still_working()
