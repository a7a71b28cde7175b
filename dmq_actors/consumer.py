"""`Consumer`: one reader of a consumer group, for one thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from dmq_actors._clients.steps import run
from dmq_actors._core.arguments import (
    check_int,
    check_messages,
    check_offsets,
    check_partitions,
    check_seconds,
)
from dmq_actors._facade.consumer_view import ConsumerView
from dmq_actors.async_consumer import AsyncConsumer
from dmq_actors.config import BEGINNING, END, AckResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from dmq_actors._clients.reader import Reader
    from dmq_actors.messages import DeliveredMessage


class Consumer(ConsumerView):
    """A member of a consumer group; made by `MessageQueue.consumer`, which names the options.

    It joins when it is made and leaves when it is closed: use it as a context manager. In an event
    loop, ``async with mq.consumer(...)`` gives an `AsyncConsumer` with the same calls to await.

    It knows in which generation it got its partitions. What it does with a partition that it has
    lost since it last polled is refused: a late commit never completes the work of the next owner.

    It leaves by itself when the thread that polled it last ends, and when it is garbage-collected;
    it is expelled when it does not poll for ``max_poll_interval`` seconds. Its next call then
    raises `ConsumerExpelledError`.

    Thread safety:
        One consumer for each thread is the rule; a second thread inside gets a
        `ConcurrentUseError`, and nothing happens. `ack`, `ack_many`, `nack`, `give_back`, `wakeup`
        and `close` may be called from any thread at any time.

    Example:
        >>> from dmq_actors import Message, MessageQueue
        >>> with MessageQueue() as mq:
        ...     _ = mq.create_topic("orders")
        ...     mq.create_consumer_group("billing", "orders")
        ...     _ = mq.publish("orders", Message("a book"))
        ...     with mq.consumer("billing") as consumer:
        ...         for message in consumer.poll(timeout=1.0):
        ...             print(message.value, consumer.ack(message).value)
        a book completed
    """

    def __init__(self, reader: Reader, keeps_alive: object) -> None:
        super().__init__(reader, keeps_alive)
        if asyncio._get_running_loop() is None:  # noqa: SLF001  # documented, and does not raise
            try:
                run(reader.join())
            except BaseException:
                reader.abandon()
                raise

    # Reading

    def poll(
        self, max_messages: int | None = None, timeout: float | None = 0.0
    ) -> list[DeliveredMessage]:
        """Take the next messages of the partitions this consumer owns.

        Each partition's messages come in offset order. Listeners run in here, before messages of
        new partitions are returned.

        Args:
            max_messages: 1 or more, over all partitions; None takes ``max_poll``.
            timeout: seconds to wait for the first message; None waits as long as it takes.

        Returns:
            The messages; ``[]`` when there was none in time, or after a `wakeup`.

        Raises:
            ConsumerExpelledError: it is no member any more; the message says why.
            ConsumerClosedError: it was closed, maybe by another thread while this waited.
            ConcurrentUseError: another thread is inside.
            OffsetLostError: retention took unread messages (``on_offset_lost="error"``); seek.
            UnknownGroupError: the group was deleted.
            BrokerClosedError: the broker was closed, maybe while this waited.
        """
        room = None if max_messages is None else check_int("max_messages", max_messages, minimum=1)
        wait = None if timeout is None else check_seconds("timeout", timeout)
        with self._reader.turn:
            return run(self._reader.poll(room, wait))

    def __iter__(self) -> Iterator[DeliveredMessage]:
        """The messages one by one, for ever: until `wakeup`, `close`, or the end of the broker.

        Up to ``max_poll`` are fetched at a time. `commit` completes what the loop has seen, the
        message in hand included, and not what is in store; a rebalance takes what is in store away.
        """
        reader = self._reader
        while True:
            with reader.turn:
                message = run(reader.next())
            if message is None:
                return
            yield message

    # Completing

    def ack(self, message: DeliveredMessage) -> AckResult:
        """Complete one message of this group. Any thread.

        Returns:
            ``COMPLETED``, or ``STALE``: this delivery was over, and nothing changed.

        Raises:
            ConsumerExpelledError, ConsumerClosedError: the delivery ended with this consumer.
            InvalidTypeError: not a message as `poll` returns it.
        """
        return run(self._reader.acknowledge(message, success=True))

    def ack_many(self, messages: Iterable[DeliveredMessage]) -> list[AckResult]:
        """Complete several messages at the price of one call; the results in their order.

        Raises:
            As `ack`.
        """
        return run(self._reader.acknowledge_many(check_messages(messages)))

    def nack(
        self, message: DeliveredMessage, error: BaseException | str | None = None
    ) -> AckResult:
        """Count a failure: the message is delivered again, or becomes a dead letter. Any thread.

        Args:
            message: as `poll` returned it.
            error: why; kept in the headers of the dead letter.

        Returns:
            ``RETRYING``, ``DEAD_LETTERED``, or ``STALE``; in an at-most-once group ``COMPLETED``.

        Raises:
            As `ack`.
        """
        return run(self._reader.acknowledge(message, success=False, error=error))

    def give_back(self, messages: Iterable[DeliveredMessage]) -> None:
        """Hand messages back that nobody has looked at: they come again, not counted as an attempt.

        What is not in this consumer's hands any more is left alone. Any thread.
        """
        run(self._reader.give_back(check_messages(messages)))

    def commit(self, offsets: Mapping[int, int] | None = None) -> dict[int, int]:
        """Complete what `poll` returned or iteration has yielded, and was not nacked.

        Args:
            offsets: by partition, the *next* offset to read (last + 1); all or nothing. None
                completes all of it.

        Returns:
            The committed offsets of the partitions concerned.

        Raises:
            StaleAssignmentError: partitions went to others since the last poll. Without `offsets`
                the rest was committed; with them nothing was. Poll again to go on.
            InvalidOffsetError: below the committed or above the current offset.
            ConsumerExpelledError, ConsumerClosedError, ConcurrentUseError: as `poll`.
        """
        checked = None if offsets is None else check_offsets(offsets)
        with self._reader.turn:
            return run(self._reader.commit(checked))

    # Partitions and offsets

    def pause(self, *partitions: int) -> None:
        """Take nothing of these partitions until `resume`; losing a partition ends its pause.

        Raises:
            StaleAssignmentError: one of them is not owned by this consumer.
        """
        with self._reader.turn:
            run(self._reader.pause(check_partitions(partitions)))

    def resume(self, *partitions: int) -> None:
        """Read these partitions again; without an argument, all of them."""
        with self._reader.turn:
            self._reader.resume(check_partitions(partitions))

    def position(self, partition: int) -> int:
        """The offset of the next message it will see of a partition.

        Raises:
            StaleAssignmentError: the partition is not owned by this consumer.
        """
        with self._reader.turn:
            return run(self._reader.offsets(*check_partitions((partition,))))[1]

    def committed(self, partition: int) -> int:
        """The committed offset of a partition: all below it is completed.

        Raises:
            StaleAssignmentError: the partition is not owned by this consumer.
        """
        with self._reader.turn:
            return run(self._reader.offsets(*check_partitions((partition,))))[0]

    def lag(self) -> dict[int, int]:
        """By owned partition, how many messages are not completed yet."""
        with self._reader.turn:
            return run(self._reader.lag())

    def seek(self, partition: int, offset: int) -> int:
        """Move the group to an offset of a partition this consumer owns; as `MessageQueue.seek`.

        Args:
            partition: one it owns.
            offset: `BEGINNING` (-1), `END` (-2), or from ``base_offset`` to ``next_offset``.

        Returns:
            The offset it was moved to.

        Raises:
            StaleAssignmentError: the partition is not owned by this consumer.
            InvalidOffsetError: out of range; the message names the range.
        """
        with self._reader.turn:
            return run(self._reader.seek(check_int("partition", partition, minimum=0), offset))

    def seek_to_beginning(self, *partitions: int) -> dict[int, int]:
        """Go back to the first retained message; without an argument, of all owned partitions."""
        return self._seek_each(partitions, BEGINNING)

    def seek_to_end(self, *partitions: int) -> dict[int, int]:
        """Skip to the next message to come; without an argument, of all owned partitions."""
        return self._seek_each(partitions, END)

    def seek_to_timestamp(self, timestamp: float, *partitions: int) -> dict[int, int]:
        """Go to the first message stored at this time or later; the end where there is none.

        Args:
            timestamp: seconds since 1970 UTC.
            partitions: owned ones; without any, all of them.

        Returns:
            By partition, the offset it was moved to.
        """
        check_seconds("timestamp", timestamp)
        with self._reader.turn:
            return run(self._reader.seek_to_timestamp(check_partitions(partitions), timestamp))

    def _seek_each(self, partitions: tuple[int, ...], offset: int) -> dict[int, int]:
        with self._reader.turn:
            return run(self._reader.seek_each(check_partitions(partitions), offset))

    # The end

    def close(self, timeout: float = 10.0) -> None:
        """Leave the group; its partitions go to the others at once. Any thread, any time.

        ``on_revoked`` is called first, while a commit is still possible, if no other thread is
        inside; a thread that is inside wakes up, hears of it there, and gets `ConsumerClosedError`.
        What was polled and not completed is delivered to the next owners.

        Args:
            timeout: seconds to wait for the group.

        Raises:
            BrokerTimeoutError: no answer in time; it will leave nevertheless.
        """
        run(self._reader.close(check_seconds("timeout", timeout)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncConsumer:
        return await AsyncConsumer(self._reader, self._keeps_alive).__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await AsyncConsumer(self._reader, self._keeps_alive).close()
