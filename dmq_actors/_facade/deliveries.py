"""`DeliveryCalls`: from `poll` to the completion of a message, and the offsets in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._actors.proxies import acknowledge
from dmq_actors._core.arguments import check_delivered, check_offsets, check_seconds
from dmq_actors._facade.calls import BrokerCalls
from dmq_actors.config import AckResult
from dmq_actors.errors import UnknownGroupError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dmq_actors.messages import DeliveredMessage


class DeliveryCalls(BrokerCalls):
    """The part of `dmq_actors.MessageQueue` about reading."""

    def poll(
        self,
        group_id: str,
        consumer_id: str,
        max_messages: int = 100,
        timeout: float | None = 0.0,
    ) -> list[DeliveredMessage]:
        """Take the next messages of this consumer's partitions.

        Each partition's messages come in offset order, and each poll starts with another
        partition. Two threads that poll as one consumer never get the same message. Polling alone
        never completes anything, except in an at-most-once group.

        Args:
            group_id: an existing group.
            consumer_id: a member. One that owns nothing waits like any other; an id that is no
                member gets ``[]`` at once, and a warning is logged.
            max_messages: 1 or more, over all partitions.
            timeout: seconds to wait for the first message; None waits as long as it takes. A
                rebalance that changes this consumer's partitions ends the wait early.

        Returns:
            The messages, or ``[]``. Each knows its ``generation`` and ``delivery_attempt``.

        Raises:
            UnknownGroupError: there is no such group, or it was deleted while this waited.
            OffsetLostError: retention took unread messages (``on_offset_lost="error"``); seek.
            BrokerClosedError: the broker was closed, maybe while this waited.
        """
        wait = None if timeout is None else check_seconds("timeout", timeout)
        group = self._group(group_id)
        polled = group.call(ConsumerGroupActor.poll, consumer_id, max_messages, wait)
        try:
            return polled.get(timeout=None if wait is None else wait + self._call_timeout)
        except BaseException:  # a time-out, a Ctrl-C: nobody will read the answer
            polled.abandon()
            raise

    def seek(self, group_id: str, partition: int, offset: int) -> int:
        """Move the whole group to an offset of one partition; the next poll starts there.

        Forward: what is skipped counts as done at the next `commit`. Backward: an at-least-once or
        at-most-once group gets everything from there on again; an exactly-once group only what it
        has not completed. Retries that wait in this partition are dropped from the schedule.

        Args:
            group_id: an existing group.
            partition: a partition of its topic.
            offset: `BEGINNING` (-1), `END` (-2), or an offset from ``base_offset`` to
                ``next_offset``. **The two numbers are the other way round in Kafka's clients.**

        Returns:
            The offset it was moved to: what BEGINNING or END was at this moment.

        Raises:
            InvalidOffsetError: out of range; the message names the range. Nothing was changed.
            UnknownPartitionError, UnknownGroupError: there is no such place.
        """
        return self._wait(self._group(group_id).call(ConsumerGroupActor.seek, partition, offset))

    # Completing

    def commit(
        self, group_id: str, consumer_id: str, offsets: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        """Complete what was delivered to this consumer.

        Args:
            group_id: an existing group.
            consumer_id: a member.
            offsets: by partition, the *next* offset to read (last + 1); all or nothing. None
                completes all that was delivered to this consumer in the partitions it owns now,
                except what was nacked.

        Returns:
            The committed offsets of the partitions concerned.

        Raises:
            StaleAssignmentError: a partition is not, or no longer, owned by this consumer. Poll
                again; its new owner gets what was not completed.
            UnknownConsumerError: this is no member (also a `StaleAssignmentError`).
            InvalidOffsetError: below the committed or above the current offset.
            UnknownGroupError, UnknownPartitionError: there is no such place.
        """
        checked = None if offsets is None else check_offsets(offsets)
        committing = self._group(group_id).call(ConsumerGroupActor.commit, consumer_id, checked)
        return self._wait(committing)

    def acknowledge(
        self,
        group_id: str,
        message: DeliveredMessage,
        success: bool = True,  # noqa: FBT001, FBT002  # fixed by the original contract
        *,
        error: BaseException | str | None = None,
    ) -> AckResult:
        """Complete one message, or say that it failed.

        Never raises for the state of the message: a late acknowledgement changes nothing and
        answers `AckResult.STALE`. In an at-most-once group everything was completed by the poll,
        and this does nothing.

        Args:
            group_id: the group that delivered it.
            message: as `poll` returned it.
            success: False counts a failure; each counts, also of the same delivery. After
                ``max_failures`` the message goes to the dead-letter topic, before that it is
                delivered again.
            error: why it failed; kept in the headers of the dead letter.

        Returns:
            ``COMPLETED``, ``RETRYING``, ``DEAD_LETTERED`` or ``STALE``.

        Raises:
            UnknownGroupError: there is no such group, and there was none that made this delivery.
            InvalidTypeError: not a message as `poll` returns it.
        """
        self._broker.check_open()
        check_delivered(message)
        directory = self._broker.directory
        try:
            group = directory.group(group_id)
            return self._wait(acknowledge(group, message, success, error))
        except UnknownGroupError:
            if directory.group_of_incarnation(message.group_incarnation) is None:
                return AckResult.STALE  # the group that delivered it is gone
            raise

    def get_consumer_lag(self, group_id: str) -> dict[int, int]:
        """By partition: ``next_offset - max(committed_offset, base_offset)``.

        Raises:
            UnknownGroupError: there is no such group.
        """
        return self._wait(self._group(group_id).call(ConsumerGroupActor.lag))
