"""`Producer`: publishing without waiting, in batches, with a future for each message."""

from __future__ import annotations

import asyncio
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from dmq_actors._core.arguments import check_seconds
from dmq_actors._runtime.forks import forked_error
from dmq_actors.errors import BrokerTimeoutError, InvalidTypeError, ProducerClosedError

if TYPE_CHECKING:
    from types import TracebackType

    from dmq_actors._clients.outbox import Outbox
    from dmq_actors._clients.send_future import SendFuture
    from dmq_actors.messages import Message


class Producer:
    """Sends messages in batches; made by `MessageQueue.producer`.

    Messages of one thread with one key are stored in the order in which they were sent, also when
    the thread goes on with `MessageQueue.publish` or another producer. A message that fails fails
    its own future only. A producer keeps its broker alive; one that is forgotten still hands over
    what it holds.

    Use it as a context manager, with ``with`` in a thread or ``async with`` in an event loop.

    Thread safety:
        Any number of threads and event loops may share one producer.

    Example:
        >>> with MessageQueue() as mq:
        ...     _ = mq.create_topic("readings", num_partitions=3)
        ...     with mq.producer("readings") as producer:
        ...         futures = [producer.send(Message(n, key="sensor-7")) for n in range(3)]
        ...     [future.result().offset for future in futures]
        [0, 1, 2]
    """

    def __init__(self, topic: str | None, outbox: Outbox, owner: object) -> None:
        self._topic = topic
        self._outbox = outbox
        self._owner = owner  # a broker that nobody holds any more would stop
        weakref.finalize(self, outbox.hand_over_unattended).atexit = False

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

    def __repr__(self) -> str:
        state = "closed" if self._outbox.is_closed else "open"
        where = "any topic" if self._topic is None else repr(self._topic)
        return f"<Producer {state}: {where}, {self.in_flight} in flight>"

    @property
    def in_flight(self) -> int:
        """Messages that were sent and are neither stored nor failed."""
        return self._outbox.in_flight

    def send(
        self, message: Message, *, topic: str | None = None, partition: int | None = None
    ) -> SendFuture:
        """Send a message; its future comes at once.

        The message is checked, copied and routed in the caller's thread, so what is wrong with it
        is raised here. Waits only while ``max_in_flight`` messages are in flight, up to
        ``max_block`` seconds; in an event loop never. A Ctrl-C during the call leaves open whether
        the message was sent; it is stored once or not at all.

        Args:
            message: key, value and headers, as for `MessageQueue.publish`.
            topic: where to; by default the topic of the producer.
            partition: where to store it; by default by its key, or in turn.

        Returns:
            A future of the `StoredMessage`.

        Raises:
            UnknownTopicError, UnknownPartitionError: there is no such place.
            InvalidTypeError, InvalidArgumentError: something is wrong with the message.
            QueueFullError: too much is in flight. Wait for earlier futures, then send it again.
            ProducerClosedError: the producer was closed, maybe while this waited for room.
            BrokerClosedError: the broker was closed.

        Thread safety:
            Any thread, any event loop, also a done-callback.
        """
        where = self._topic if topic is None else topic
        if where is None:
            raise InvalidTypeError(
                "no topic (None): this producer has no topic of its own, so say send(…, topic=…)"
            )
        return self._outbox.send(where, message, partition)

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until all that was sent before is stored or has failed.

        Failures stay in their futures.

        In an event loop ``await`` the futures instead: this blocks the thread.

        Args:
            timeout: seconds to wait at most.

        Raises:
            BrokerTimeoutError: some are still in flight; they may be stored later.
        """
        seconds = check_seconds("timeout", timeout)
        if self._outbox.is_forked():
            raise forked_error()
        left = self._outbox.wait_until_settled(time.monotonic() + seconds)
        if left:
            raise BrokerTimeoutError(
                f"{left} messages are still in flight after {timeout} s; they may be stored later"
            )

    def close(self, timeout: float = 10.0) -> int:
        """Refuse new messages, hand over what lingers, and wait until all is stored or has failed.

        May be called again, and by several threads: all wait. In the child of a fork it does
        nothing. Whatever is not settled in time goes on: its future is settled later, at the latest
        when the broker closes.

        Args:
            timeout: seconds to wait at most.

        Returns:
            How many messages are still in flight; 0 if all went well.
        """
        seconds = check_seconds("timeout", timeout)
        if self._outbox.is_forked():
            return 0
        self._outbox.refuse(_closed_error)
        left = self._outbox.wait_until_settled(time.monotonic() + seconds)
        return self._closed(left)

    async def aclose(self, timeout: float = 10.0) -> int:  # noqa: ASYNC109  # as `close` has it
        """As `close`, for an event loop, which goes on meanwhile."""
        seconds = check_seconds("timeout", timeout)
        if self._outbox.is_forked():
            return 0
        self._outbox.refuse(_closed_error)
        futures = self._outbox.unsettled()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for future in futures:
                    await future.settled()
        return self._closed(sum(not future.done() for future in futures))

    def _closed(self, left: int) -> int:
        if not left:
            self._outbox.forget_me()
        return left


def _closed_error() -> ProducerClosedError:
    return ProducerClosedError("this producer is closed; make a new one with mq.producer()")
