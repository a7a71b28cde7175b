"""`ClientCalls`: what an application is written with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uuid_utils import uuid4

from dmq_actors._actors.membership import Listeners
from dmq_actors._actors.reader import Reader
from dmq_actors._actors.session import Session
from dmq_actors._core.arguments import check_consumer_id, check_int, check_limit
from dmq_actors._facade.calls import BrokerCalls
from dmq_actors.consumer import Consumer
from dmq_actors.errors import InvalidTypeError

if TYPE_CHECKING:
    from dmq_actors._actors.membership import Listener


class ClientCalls(BrokerCalls):
    """The part of `dmq_actors.MessageQueue` that makes consumers."""

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
