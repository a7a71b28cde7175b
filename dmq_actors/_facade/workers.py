"""`WorkerCalls`: handlers instead of loops, and waiting until they are done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from uuid_utils import uuid4

from dmq_actors._actors.coordinator import CoordinatorActor
from dmq_actors._actors.session import Session
from dmq_actors._clients.handler import Handler
from dmq_actors._clients.membership import Listeners
from dmq_actors._clients.reader import Reader
from dmq_actors._core.arguments import check_int, check_limit
from dmq_actors._facade.calls import BrokerCalls
from dmq_actors._facade.idle import check_expected, wait_idle
from dmq_actors.config import Delivery
from dmq_actors.errors import GroupExistsError, InvalidArgumentError
from dmq_actors.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from dmq_actors.config import GroupOptions
    from dmq_actors.info import HandlerFailure

F = TypeVar("F", bound="Callable[[Any], Any]")


class WorkerCalls(BrokerCalls):
    """The part of `dmq_actors.MessageQueue` about worker pools."""

    def workers(
        self,
        group_id: str,
        handler: Callable[[Any], Any],
        *,
        concurrency: int = 4,
        batch_size: int | None = None,
        executor: Executor | None = None,
        max_poll: int = 500,
        max_poll_interval: float | None = 300.0,
    ) -> WorkerPool:
        """Let workers handle the messages of a group, from now until the pool or broker is closed.

        What `handler` returns is ignored, and completes the message. An exception counts as a
        failure with that error (retried, then a dead letter), is logged as ``handler.failed``, and
        kept in ``failures``. `SystemExit` and `KeyboardInterrupt` stop the pool and nothing else:
        the message is given back.

        Messages of one key are handled one after the other, in order, retries included
        (``retry_order``). Members beyond the number of partitions have nothing to do.

        Args:
            group_id: an existing group.
            handler: a function of a `DeliveredMessage`, or of a list of them with `batch_size`. A
                coroutine function runs in the running loop, or else in a loop of the pool's own.
            concurrency: how many workers, 1 or more: threads, or tasks for a coroutine function.
            batch_size: up to how many messages it takes at once, all of one worker; None for one by
                one. When it raises, each message of the batch is handled again by itself, at once,
                so that a bad one fails alone.
            executor: where a plain function runs instead: a ``ProcessPoolExecutor`` for work that
                needs the processor; function, messages and errors must be picklable. It is yours to
                shut down, after the pool. If it breaks, the pool stops and gives the message back.
            max_poll: messages that a worker fetches at a time.
            max_poll_interval: seconds that a handler may take for a message; a worker that takes
                longer loses its partitions and joins anew. None for no limit.

        Raises:
            UnknownGroupError: there is no such group.
            InvalidArgumentError: an option cannot be right.
        """
        checked = Handler(handler, batch_size, executor)
        count = check_int("concurrency", concurrency, minimum=1, maximum=10_000)
        room = check_int("max_poll", max_poll, minimum=1)
        interval = check_limit("max_poll_interval", max_poll_interval)
        pool_id = str(uuid4())[:8]

        def join(number: int) -> Reader:
            session = Session(f"worker-{pool_id}-{number}", interval, is_worker=True)
            return Reader(self._broker, group_id, session, Listeners(), room, self._call_timeout)

        return WorkerPool(self._broker, group_id, checked, count, join)

    def subscriber(
        self,
        topic: str,
        group: str | None = None,
        *,
        concurrency: int = 4,
        batch_size: int | None = None,
        executor: Executor | None = None,
        delivery: str = Delivery.AT_LEAST_ONCE,
        **options: Unpack[GroupOptions],
    ) -> Callable[[F], F]:
        """Decorate a handler: its group is created if there is none, and its pool works at once.

        The function stays what it is. The pool ends with the broker, gracefully.

        Args:
            topic: an existing topic.
            group: the group's name; None takes that of the function.
            concurrency: as for `workers`.
            batch_size: as for `workers`.
            executor: as for `workers`.
            delivery: of a new group.
            options: of a new group; see `create_consumer_group`.

        Raises:
            UnknownTopicError: there is no such topic.
            InvalidArgumentError: the group exists and reads another topic; or as for `workers`.
        """
        self._broker.check_open()
        self._broker.directory.topic(topic)

        def subscribe(handler: F) -> F:
            Handler(handler, batch_size, executor)  # before a group is made for it
            name = getattr(handler, "__name__", None) if group is None else group
            if name is None:
                raise InvalidArgumentError(
                    f"{handler!r} has no name to call its group by; give group="
                )
            try:
                self._wait(
                    self._coordinator.call(
                        CoordinatorActor.create_consumer_group, name, topic, delivery, **options
                    )
                )
            except GroupExistsError:
                reads = self._broker.directory.group(name).topic.name
                if reads != topic:
                    raise InvalidArgumentError(
                        f"group {name!r} exists and reads topic {reads!r}, not {topic!r}; "
                        "choose another group"
                    ) from None
            self.workers(
                name, handler, concurrency=concurrency, batch_size=batch_size, executor=executor
            )
            return handler

        return subscribe

    def take_handler_failures(self) -> list[HandlerFailure]:
        """What the handlers of all pools have raised since the last call, the latest 1000.

        For tests: whoever took them has looked at them. Works on a closed broker too.
        """
        return self._broker.failures.take(lambda _: True)

    def wait_idle(
        self,
        topic: str | None = None,
        group: str | None = None,
        timeout: float = 10.0,
        *,
        expected: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> None:
        """Wait until everything published is completed, and no worker has anything in hand.

        Dead letters count as completed. Work that handlers publish counts too, wherever it goes on.
        Blocks; in an event loop use ``await asyncio.to_thread(mq.wait_idle)``.

        Args:
            topic: only the groups of this topic; None for all.
            group: only this group; None for all.
            timeout: seconds to wait at most.
            expected: errors of handlers that are no reason to stop waiting.

        Raises:
            HandlerFailedError: a handler raised something else; it is the cause of this error.
            NotIdleError: not in time. It names group, partition, lag, what is in flight, what was
                dead-lettered, and groups without members.
            UnknownTopicError, UnknownGroupError: there is no such place.
        """
        wait_idle(self._broker, topic, group, timeout, check_expected(expected))
