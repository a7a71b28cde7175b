"""`AsyncConsumer`: one reader of a consumer group, for one task of an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from dmq_actors._clients.steps import run_async
from dmq_actors._core.arguments import (
    check_int,
    check_messages,
    check_offsets,
    check_partitions,
    check_seconds,
)
from dmq_actors._facade.consumer_view import ConsumerView
from dmq_actors.config import BEGINNING, END, AckResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from dmq_actors.messages import DeliveredMessage


class AsyncConsumer(ConsumerView):
    """A member of a consumer group whose calls are awaited: ``async with mq.consumer(...)``.

    The calls, their arguments and their errors are those of `Consumer`. Waiting costs no thread and
    never blocks the loop. Cancelling a call loses no message: a cancelled `poll` gives its messages
    back. Listeners may be coroutine functions; they run in the task that polls.

    Thread safety:
        One consumer for each task is the rule; a second one inside gets a `ConcurrentUseError`.
        `ack`, `ack_many`, `nack`, `give_back`, `wakeup` and `close` may be called from any task of
        any loop, `wakeup` from any thread too. Consumers of one group may live in several loops.

    Example:
        >>> import asyncio
        >>> from dmq_actors import Message, MessageQueue
        >>> async def main():
        ...     with MessageQueue() as mq:
        ...         _ = mq.create_topic("orders")
        ...         mq.create_consumer_group("billing", "orders")
        ...         _ = mq.publish("orders", Message("a book"))
        ...         async with mq.consumer("billing") as consumer:
        ...             async for message in consumer:
        ...                 result = await consumer.ack(message)
        ...                 return message.value, result.value
        >>> asyncio.run(main())
        ('a book', 'completed')
    """

    # Reading

    async def poll(
        self,
        max_messages: int | None = None,
        timeout: float | None = 0.0,  # noqa: ASYNC109  # no time-out of the task: ends with []
    ) -> list[DeliveredMessage]:
        """As `Consumer.poll`."""
        room = None if max_messages is None else check_int("max_messages", max_messages, minimum=1)
        wait = None if timeout is None else check_seconds("timeout", timeout)
        with self._reader.turn:
            return await run_async(self._reader.poll(room, wait))

    def __aiter__(self) -> Self:
        """As iteration over a `Consumer`."""
        return self

    async def __anext__(self) -> DeliveredMessage:
        with self._reader.turn:
            message = await run_async(self._reader.next())
        if message is None:
            raise StopAsyncIteration
        return message

    # Completing

    async def ack(self, message: DeliveredMessage) -> AckResult:
        """As `Consumer.ack`."""
        return await run_async(self._reader.acknowledge(message, success=True))

    async def ack_many(self, messages: Iterable[DeliveredMessage]) -> list[AckResult]:
        """As `Consumer.ack_many`."""
        return await run_async(self._reader.acknowledge_many(check_messages(messages)))

    async def nack(
        self, message: DeliveredMessage, error: BaseException | str | None = None
    ) -> AckResult:
        """As `Consumer.nack`."""
        return await run_async(self._reader.acknowledge(message, success=False, error=error))

    async def give_back(self, messages: Iterable[DeliveredMessage]) -> None:
        """As `Consumer.give_back`."""
        await run_async(self._reader.give_back(check_messages(messages)))

    async def commit(self, offsets: Mapping[int, int] | None = None) -> dict[int, int]:
        """As `Consumer.commit`."""
        checked = None if offsets is None else check_offsets(offsets)
        with self._reader.turn:
            return await run_async(self._reader.commit(checked))

    # Partitions and offsets

    async def pause(self, *partitions: int) -> None:
        """As `Consumer.pause`."""
        with self._reader.turn:
            await run_async(self._reader.pause(check_partitions(partitions)))

    async def resume(self, *partitions: int) -> None:
        """As `Consumer.resume`."""
        with self._reader.turn:
            self._reader.resume(check_partitions(partitions))

    async def position(self, partition: int) -> int:
        """As `Consumer.position`."""
        with self._reader.turn:
            offsets = self._reader.offsets(*check_partitions((partition,)))
            return (await run_async(offsets))[1]

    async def committed(self, partition: int) -> int:
        """As `Consumer.committed`."""
        with self._reader.turn:
            offsets = self._reader.offsets(*check_partitions((partition,)))
            return (await run_async(offsets))[0]

    async def lag(self) -> dict[int, int]:
        """As `Consumer.lag`."""
        with self._reader.turn:
            return await run_async(self._reader.lag())

    async def seek(self, partition: int, offset: int) -> int:
        """As `Consumer.seek`."""
        with self._reader.turn:
            seeking = self._reader.seek(check_int("partition", partition, minimum=0), offset)
            return await run_async(seeking)

    async def seek_to_beginning(self, *partitions: int) -> dict[int, int]:
        """As `Consumer.seek_to_beginning`."""
        return await self._seek_each(partitions, BEGINNING)

    async def seek_to_end(self, *partitions: int) -> dict[int, int]:
        """As `Consumer.seek_to_end`."""
        return await self._seek_each(partitions, END)

    async def seek_to_timestamp(self, timestamp: float, *partitions: int) -> dict[int, int]:
        """As `Consumer.seek_to_timestamp`."""
        check_seconds("timestamp", timestamp)
        with self._reader.turn:
            seeking = self._reader.seek_to_timestamp(check_partitions(partitions), timestamp)
            return await run_async(seeking)

    async def _seek_each(self, partitions: tuple[int, ...], offset: int) -> dict[int, int]:
        with self._reader.turn:
            return await run_async(self._reader.seek_each(check_partitions(partitions), offset))

    # The end

    async def close(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109  # as elsewhere
        """As `Consumer.close`."""
        await run_async(self._reader.close(check_seconds("timeout", timeout)))

    async def __aenter__(self) -> Self:
        try:
            await run_async(self._reader.join())
        except BaseException:
            self._reader.abandon()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
