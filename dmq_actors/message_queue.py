"""`MessageQueue`: the broker as its users see it.

Every method sends one message to an actor and waits for the answer, with a bound and typed errors.
The methods stand in `dmq_actors._facade`, by what they are about.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Self, cast

from dmq_actors._actors.broker import Broker
from dmq_actors._actors.proxies import CoordinatorProxy, GroupProxy
from dmq_actors._core.arguments import check_int, check_seconds
from dmq_actors._facade.clients import ClientCalls
from dmq_actors._facade.deliveries import DeliveryCalls
from dmq_actors._facade.groups import GroupCalls
from dmq_actors._facade.topics import TopicCalls
from dmq_actors._facade.workers import WorkerCalls
from dmq_actors._runtime.scheduler import Scheduler
from dmq_actors.errors import BrokerTimeoutError, InvalidTypeError
from dmq_actors.redrive import redrive

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dmq_actors._actors.proxies import PartitionProxy
    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.filtered_mailbox import FaultSource
    from dmq_actors.info import ActorFailure, CloseReport
    from dmq_actors.messages import Message, StoredMessage


class MessageQueue(TopicCalls, GroupCalls, DeliveryCalls, ClientCalls, WorkerCalls):
    """An embedded message broker: topics, partitions, consumer groups, in this process.

    Use it as a context manager, or call `close`. A program that forgets both still exits at once.

    Args:
        call_timeout: seconds that a call may take at most, besides the time it was told to wait.
            A healthy broker answers in microseconds; the bound is for the other days.
        clock: where time comes from; `dmq_actors.testing.ManualClock` in tests.
        scheduler: what runs the actors; `dmq_actors.testing.SeededScheduler` in tests. None makes
            threads of the broker's own.
        faults: what shall go wrong in the actors; `dmq_actors.testing.Faults` in tests.
        actor_threads: threads that run the actors, 1 to 64. One is fastest wherever Python has its
            global lock; more can pay on free-threaded builds.

    Thread safety:
        Every method may be called from any number of threads at the same time.

    Example:
        >>> with MessageQueue() as mq:
        ...     _ = mq.create_topic("greetings")
        ...     mq.create_consumer_group("readers", "greetings")
        ...     _ = mq.add_consumer("readers", "me")
        ...     _ = mq.publish("greetings", Message("hello"))
        ...     [message.value for message in mq.poll("readers", "me")]
        ['hello']
    """

    def __init__(
        self,
        *,
        call_timeout: float = 30.0,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
        faults: FaultSource | None = None,
        actor_threads: int = 1,
    ) -> None:
        self._call_timeout = check_seconds("call_timeout", call_timeout, above_zero=True)
        if clock is not None and not all(
            callable(getattr(clock, name, None)) for name in ("time", "monotonic", "call_at")
        ):
            raise InvalidTypeError(
                f"a clock has time(), monotonic() and call_at(); found {type(clock).__name__}"
            )
        if scheduler is not None and not isinstance(scheduler, Scheduler):
            raise InvalidTypeError(
                f"scheduler is a SeededScheduler or None, found {type(scheduler).__name__}"
            )
        if faults is not None and not callable(getattr(faults, "new_filter", None)):
            raise InvalidTypeError(f"faults are a Faults or None, found {type(faults).__name__}")
        threads = check_int("actor_threads", actor_threads, minimum=1, maximum=64)
        new_filter = faults.new_filter if faults is not None else None
        self._broker = Broker(clock, threads, scheduler, new_filter)
        self._coordinator_proxy = CoordinatorProxy(self._broker.coordinator, self._broker.directory)
        weakref.finalize(self, self._broker.abandon).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        topics, groups = self._broker.directory.topics, self._broker.directory.groups
        state = "closed" if self._broker.is_closed else "open"
        return f"<MessageQueue {state}: {len(topics)} topics, {len(groups)} groups>"

    def close(self, timeout: float = 10.0) -> CloseReport:
        """Stop the broker: refuse new calls, wake all waiters, stop all actors and their threads.

        What was accepted before is still done. Waiting polls and publishes end with
        `BrokerClosedError`. May be called again, and by several threads: all wait for the first.
        In the child of a fork it does nothing.

        Args:
            timeout: seconds to wait for the threads to end.

        Returns:
            What was left undone: messages in flight by group, threads that did not end in time;
            and what hit an actor without a caller to tell, see `take_actor_failures`.
        """
        return self._broker.close(check_seconds("timeout", timeout))

    def take_actor_failures(self) -> list[ActorFailure]:
        """What hit an actor and no caller was told, since the last call; the last hundred.

        An actor goes on after a failure, and whoever waits for an answer gets the error. What an
        actor does for nobody (a timer, a call with ``defer``) can only be logged, and noted here.
        A healthy broker has no such failures. Works on a closed broker, too.

        Example:
            >>> mq = MessageQueue()
            >>> mq.take_actor_failures()
            []
            >>> mq.close().actor_failures
            ()
        """
        return self._broker.take_actor_failures()

    # Dead letters

    def redrive(
        self,
        topic: str,
        max_messages: int | None = None,
        *,
        repair: Callable[[StoredMessage], Message | None] | None = None,
        timeout: float = 30.0,
    ) -> list[StoredMessage]:
        """Publish the dead letters of a topic back to it, in their order per partition.

        Each is redriven once; those that come while this runs wait for the next time. A message
        that was redriven starts at attempt 1 and may become a dead letter again. The dead-letter
        topic keeps its log; what was redriven is remembered by a group of the broker's own.

        Args:
            topic: the topic they came from.
            max_messages: how many at most; None takes all.
            repair: gets each dead letter, with the headers that tell what happened (see
                `DeadLetterHeader`), and answers the message to publish, or None to leave this one
                for another time. The broker's own headers are taken off in any case. Runs in this
                thread; what it raises ends the redrive.
            timeout: seconds for each publish, and to wait for a redrive in another thread.

        Returns:
            The messages as they are stored again.

        Raises:
            UnknownTopicError: there is no such topic.
            BrokerTimeoutError: another thread is still redriving.
        """
        self._broker.check_open()
        seconds = check_seconds("timeout", timeout)
        if not self._broker.redriving.acquire(timeout=seconds):
            raise BrokerTimeoutError(
                f"another thread has been redriving for {timeout} s; nothing was done, try again"
            )
        try:
            return redrive(self, topic, max_messages, repair, seconds)
        finally:
            self._broker.redriving.release()

    # The actors

    @property
    def coordinator(self) -> CoordinatorProxy:
        """The coordinator by proxy: every call returns a `Promise` at once."""
        self._broker.check_open()
        return self._coordinator_proxy

    def partition_actor(self, topic: str, partition: int) -> PartitionProxy:
        """A partition by proxy: look at its log without a group.

        Raises:
            UnknownTopicError, UnknownPartitionError: there is no such partition.
        """
        self._broker.check_open()
        ref = self._broker.directory.partition(topic, partition)
        return cast("PartitionProxy", ref.proxy())

    def group_actor(self, group_id: str) -> GroupProxy:
        """A group by proxy: members, polls, commits, offsets.

        Raises:
            UnknownGroupError: there is no such group.
        """
        self._broker.check_open()
        return GroupProxy(self._broker.directory.group(group_id))
