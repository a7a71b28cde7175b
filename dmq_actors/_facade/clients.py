"""`ClientCalls`: the objects that work with a broker for longer than one call."""

from __future__ import annotations

from dmq_actors._actors.outbox import Outbox
from dmq_actors._core.arguments import check_int, check_seconds
from dmq_actors._facade.calls import BrokerCalls
from dmq_actors.producer import Producer


class ClientCalls(BrokerCalls):
    """The part of `dmq_actors.MessageQueue` that makes producers."""

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
