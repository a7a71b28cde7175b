"""`GroupCalls`: consumer groups and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmq_actors._actors.coordinator import CoordinatorActor
from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._facade.calls import BrokerCalls
from dmq_actors.config import Delivery, OnOffsetLost, RetryOrder, StartFrom

if TYPE_CHECKING:
    from dmq_actors.info import GroupInfo


class GroupCalls(BrokerCalls):
    """The part of `dmq_actors.MessageQueue` about groups."""

    def create_consumer_group(
        self,
        group_id: str,
        topic: str,
        delivery: str = Delivery.AT_LEAST_ONCE,
        *,
        start_from: str = StartFrom.EARLIEST,
        assignor: str = "modular",
        max_failures: int = 3,
        retry_backoff: float = 0.0,
        retry_backoff_max: float = 60.0,
        retry_order: str = RetryOrder.KEY,
        on_offset_lost: str = OnOffsetLost.EARLIEST,
    ) -> None:
        """Create a consumer group, bound to one topic for life.

        Args:
            group_id: as a topic's name.
            topic: an existing topic; a dead-letter topic too.
            delivery: ``"at_most_once"``, ``"at_least_once"`` or ``"exactly_once"``; see `Delivery`.
            start_from: ``"earliest"`` or ``"latest"``, resolved once, now.
            assignor: ``"modular"`` (partition p to member p modulo their number), ``"range"``,
                ``"roundrobin"`` or ``"sticky"`` (moves the fewest partitions).
            max_failures: nacks after which a message becomes a dead letter; 1 or more.
            retry_backoff: seconds before the second attempt, doubled for each further one.
            retry_backoff_max: the longest wait between two attempts, in seconds.
            retry_order: what waits behind a message that waits for its next attempt: ``"key"``
                (later messages of its key), ``"none"``, or ``"partition"`` (all later ones).
            on_offset_lost: where to go on when retention was faster than the group:
                ``"earliest"``, ``"latest"``, or ``"error"`` (`poll` raises `OffsetLostError`).

        Raises:
            GroupExistsError: there is one of this name.
            UnknownTopicError: there is no such topic.
            InvalidArgumentError: a name or option cannot be right; the message names the rule.
        """
        self._wait(
            self._coordinator.call(
                CoordinatorActor.create_consumer_group,
                group_id,
                topic,
                delivery,
                start_from=start_from,
                assignor=assignor,
                max_failures=max_failures,
                retry_backoff=retry_backoff,
                retry_backoff_max=retry_backoff_max,
                retry_order=retry_order,
                on_offset_lost=on_offset_lost,
            )
        )

    def delete_consumer_group(self, group_id: str) -> None:
        """Delete a group and all it knows; its waiting polls end with `UnknownGroupError`.

        Raises:
            UnknownGroupError: there is no such group.
        """
        self._wait(self._coordinator.call(CoordinatorActor.delete_consumer_group, group_id))

    def list_consumer_groups(self) -> list[str]:
        """The names of all groups, in order of creation."""
        return self._wait(self._coordinator.call(CoordinatorActor.list_consumer_groups))

    def get_group_info(self, group_id: str) -> GroupInfo:
        """A snapshot: members, assignments, generation, and for each partition offsets and lag.

        Raises:
            UnknownGroupError: there is no such group.
        """
        return self._wait(self._group(group_id).call(ConsumerGroupActor.info))

    def add_consumer(self, group_id: str, consumer_id: str) -> dict[str, list[int]]:
        """Let a consumer join a group; the partitions are dealt out anew at once.

        Args:
            group_id: an existing group.
            consumer_id: 1 to 249 printable characters, unlike those of the other members.

        Returns:
            The new assignments: the partitions of each member, in order of joining. A member
            beyond the number of partitions gets ``[]`` and takes over when an owner leaves.

        Raises:
            ConsumerExistsError: there is a member of this id; the first one stays.
            UnknownGroupError: there is no such group.
        """
        return self._wait(
            self._coordinator.call(CoordinatorActor.add_consumer, group_id, consumer_id)
        )

    def remove_consumer(self, group_id: str, consumer_id: str) -> dict[str, list[int]]:
        """Let a consumer leave a group; the partitions are dealt out anew at once.

        What it had acknowledged before counts; what it had in flight is delivered to the next
        owners, and its late acknowledgements are `AckResult.STALE`. Its waiting polls end with
        ``[]``.

        Returns:
            The new assignments.

        Raises:
            UnknownConsumerError: there is no such member.
            UnknownGroupError: there is no such group.
        """
        return self._wait(
            self._coordinator.call(CoordinatorActor.remove_consumer, group_id, consumer_id)
        )
