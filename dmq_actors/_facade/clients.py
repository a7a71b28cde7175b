"""`ClientCalls`: what an application is written with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uuid_utils import uuid4

from dmq_actors._actors.session import Session
from dmq_actors._clients.membership import Listeners
from dmq_actors._clients.outbox import Outbox
from dmq_actors._clients.reader import Reader
from dmq_actors._core.arguments import check_consumer_id, check_int, check_limit, check_seconds
from dmq_actors._facade.calls import BrokerCalls
from dmq_actors.consumer import Consumer
from dmq_actors.errors import InvalidTypeError
from dmq_actors.producer import Producer

if TYPE_CHECKING:
    from dmq_actors._clients.membership import Listener


class ClientCalls(BrokerCalls):
    """The part of `dmq_actors.MessageQueue` that makes producers and consumers."""

    def producer(
        self,
        topic: str | None = None,
        *,
        linger: float = 0.005,
        batch_size: int = 500,
        max_in_flight: int = 10_000,
        max_block: float = 30.0,
    ) -> Producer:
        """Make a `Producer`: it sends in batches, and gives a future for each message at once.

        Args:
            topic: where it sends to; None lets each `Producer.send` name the topic.
            linger: seconds that a message waits for others, 0 or more, on the broker's clock. With
                0 none waits; batches form all the same while the broker is busy.
            batch_size: with so many messages, 1 or more, nothing lingers any more.
            max_in_flight: messages, 1 or more, that may be sent and not stored; this bounds memory.
            max_block: seconds that `Producer.send` waits for room when so many are; 0 or more.

        Returns:
            The producer. Threads may share it. Close it, or use it as a context manager.

        Raises:
            UnknownTopicError: there is no such topic.
            InvalidArgumentError: an option cannot be right; the message names the rule.
            BrokerClosedError: the broker is closed.
        """
        self._broker.check_open()
        if topic is not None:
            self._broker.directory.topic(topic)
        outbox = Outbox(
            self._broker,
            check_seconds("linger", linger),
            check_int("batch_size", batch_size, minimum=1),
            check_int("max_in_flight", max_in_flight, minimum=1),
            check_seconds("max_block", max_block),
        )
        return Producer(topic, outbox, owner=self)

    def consumer(
        self,
        group_id: str,
        *,
        consumer_id: str | None = None,
        max_poll: int = 500,
        max_poll_interval: float | None = 300.0,
        session_timeout: float | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> Consumer:
        """Join a group with a `Consumer`: for one thread, or with ``async with`` for one task.

        Args:
            group_id: an existing group.
            consumer_id: its name, unlike those of the other members; None makes one.
            max_poll: messages that a poll takes if not told otherwise, and iteration at a time.
            max_poll_interval: seconds after which a consumer that does not poll is expelled; None
                for no limit. An iteration counts as polling. A consumer that waits in a poll is
                alive.
            session_timeout: seconds after which a consumer is expelled that did nothing at all:
                no poll, no ack, no commit. None for no limit, which is right for most: a thread
                that died is seen at once, without a time-out.
            on_assigned: called with a list of partition numbers that are its own now, before
                messages of them are returned.
            on_revoked: called with those that went to other members, and with all when it closes.
            on_lost: called with all of them when it was expelled, removed, or its group deleted;
                None calls `on_revoked` instead.

        Listeners run in the thread that polls, and may use the consumer. What they raise comes out
        of `Consumer.poll`.

        Raises:
            UnknownGroupError: there is no such group.
            ConsumerExistsError: the group has a member of this id; the first one stays.
            InvalidArgumentError: an option cannot be right.
        """
        listeners = Listeners(on_assigned, on_revoked, on_lost)
        for name, listener in zip(Listeners._fields, listeners, strict=True):
            if listener is not None and not callable(listener):
                raise InvalidTypeError(
                    f"{name} is a function of a list of partitions, or None, "
                    f"found {type(listener).__name__}"
                )
        session = Session(
            f"consumer-{str(uuid4())[:8]}"
            if consumer_id is None
            else check_consumer_id(consumer_id),
            check_limit("max_poll_interval", max_poll_interval),
            check_limit("session_timeout", session_timeout),
        )
        room = check_int("max_poll", max_poll, minimum=1)
        reader = Reader(self._broker, group_id, session, listeners, room, self._call_timeout)
        return Consumer(reader, self)
