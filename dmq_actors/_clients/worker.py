"""`Worker`: polls, lets the handler work, and says what became of it; one of a pool.

Its `work` is steps (see `steps`), so the same worker is a thread or a task. It acknowledges without
waiting for the answer: what it tells the group comes there in order, its leaving last.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dmq_actors._clients.handler import PoolStopped
from dmq_actors.errors import ActorCrashedError, ConsumerExpelledError, DMQError, UnknownGroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dmq_actors._clients.handler import Handler
    from dmq_actors._clients.reader import Reader
    from dmq_actors._clients.steps import Steps
    from dmq_actors._runtime.promise import Promise
    from dmq_actors.messages import DeliveredMessage

_LEAVE_TIMEOUT = 5.0


class Worker:
    """One member of the group of a pool.

    Args:
        handler: what to do with messages.
        join: makes a member.
        failed: told of each message that failed.
        stop_pool: told when the pool must end, with the reason, and with the message in hand.
        finished: told when this has nothing in hand any more; a promise that nobody has.
    """

    def __init__(
        self,
        handler: Handler,
        join: Callable[[], Reader],
        failed: Callable[[DeliveredMessage, BaseException], None],
        stop_pool: Callable[[BaseException, DeliveredMessage | None], None],
        finished: Callable[[], Promise[None]],
    ) -> None:
        self._handler = handler
        self._join = join
        self._failed = failed
        self._stop_pool = stop_pool
        self._finished = finished
        self._stopping = False
        self._reader = join()

    def joined(self) -> Steps[None]:
        """Wait until this is a member; what it raises says why it cannot be one."""
        yield from self._reader.join()

    def abandon(self) -> None:
        """Leave without having worked."""
        self._reader.abandon()

    def stop(self) -> None:
        """Finish what is in hand, and take nothing more. Any thread."""
        self._stopping = True
        self._reader.wakeup()

    def work(self) -> Steps[None]:
        """Work until stopped; raises nothing."""
        try:
            while not self._stopping:
                try:
                    yield from self._work_once()
                except ConsumerExpelledError:
                    self._reader = self._join()
                    if self._stopping:  # it may have come between
                        self._reader.wakeup()
                except ActorCrashedError:
                    continue  # it goes on with its state, and so does this
        except UnknownGroupError:  # the group was deleted: there is nothing to do any more
            return
        except BaseException as error:  # noqa: BLE001  # told to whoever looks at the pool
            self._stop_pool(error, None)
        finally:
            # Whoever left at once would set off a rebalance that takes from the others what they
            # are still working at.
            self._reader.return_store()
            yield self._finished(), None
            yield from self._leave()

    def _work_once(self) -> Steps[None]:
        reader, size = self._reader, self._handler.batch_size
        if size is None:
            message = yield from reader.next()
            if message is not None:
                yield from self._handle([message])
            elif reader.is_over:
                self._stopping = True
            return
        try:
            messages = yield from reader.poll(size, None)
        except DMQError:
            if not reader.is_over:
                raise
            self._stopping = True
            return
        if messages:
            yield from self._handle(messages)

    def _handle(self, messages: list[DeliveredMessage]) -> Steps[None]:
        try:
            yield from self._handler.call(messages if self._handler.batch_size else messages[0])
        except Exception as error:  # noqa: BLE001  # the handler's
            if len(messages) == 1:
                self._fail(messages[0], error)
            else:
                yield from self._handle_each(messages)
        except BaseException as error:  # noqa: BLE001  # not about this message, but about the pool
            self._reader.store.put_back(messages)
            self._stopping = True
            told = isinstance(error, PoolStopped | asyncio.CancelledError)
            self._stop_pool(error, None if told else messages[0])
        else:
            self._reader.complete_later(messages)

    def _handle_each(self, messages: Sequence[DeliveredMessage]) -> Steps[None]:
        """One of a batch is bad: only each by itself will tell which."""
        self._reader.store.put_back(messages)
        for _ in messages:
            yield from self._reader.ready()  # what was lost meanwhile, or must wait, is gone
            one = self._reader.store.take(1)
            if not one or self._stopping:
                self._reader.store.put_back(one)
                return
            yield from self._handle(one)

    def _fail(self, message: DeliveredMessage, error: Exception) -> None:
        self._failed(message, error)
        self._reader.fail_later(message, error)

    def _leave(self) -> Steps[None]:
        try:
            yield from self._reader.close(_LEAVE_TIMEOUT)
        except BaseException as error:  # noqa: BLE001  # the group takes it out when this is gone
            self._stop_pool(error, None)
