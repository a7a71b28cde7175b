"""`GroupState`: the members of a group, who owns which partition, and the progress of each.

Rules, after Kafka's group protocol, with one difference: there is one process, so a rebalance takes
effect at once. One join or leave makes exactly one new generation; nothing else makes one. A
partition has one owner, or none when there are no members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmq_actors._core import scan
from dmq_actors._core.arguments import show
from dmq_actors._core.assignors import resolve_assignor
from dmq_actors._core.dead_letters import is_dead_letter_topic
from dmq_actors._core.dedupe import MessageIdIndex
from dmq_actors._core.partitioners import optional_key_bytes
from dmq_actors._core.progress import Progress
from dmq_actors._core.scan import Fetched, Handed, Range, Reader
from dmq_actors.config import AckResult, Delivery
from dmq_actors.errors import (
    ConsumerExistsError,
    StaleAssignmentError,
    UnknownConsumerError,
    UnknownPartitionError,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dmq_actors._core.handout import Piece
    from dmq_actors._core.progress import DeliveryKey
    from dmq_actors.config import GroupConfig
    from dmq_actors.messages import DeliveredMessage


class GroupState:
    """What a consumer group knows. No thread, no clock: times are arguments.

    Args:
        group_id: its name.
        topic: the topic it is bound to for life.
        start_offsets: by partition, where it begins.
        config: its options.
        incarnation: a number no other group of this broker has had, of whatever name.
    """

    def __init__(
        self,
        group_id: str,
        topic: str,
        start_offsets: Sequence[int],
        config: GroupConfig,
        incarnation: int,
    ) -> None:
        self.group_id = group_id
        self.topic = topic
        self.config = config
        self.generation = 0
        self.incarnation = incarnation
        self.partitions = [
            Progress(partition, start, config) for partition, start in enumerate(start_offsets)
        ]
        self.assignment: dict[str, list[int]] = {}
        self.owners: dict[int, str] = {}
        self.owned_since: dict[int, int] = {}
        self.duplicates_total = 0
        self.dead_lettered_total = 0
        self._assign = resolve_assignor(config.assignor)
        self._turns: dict[str, int] = {}
        self._seen_ids = MessageIdIndex() if config.delivery is Delivery.EXACTLY_ONCE else None

    # Members

    def add_member(self, consumer_id: str) -> set[str]:
        """Let a consumer join; answers whose partitions changed.

        Raises:
            ConsumerExistsError: there is a member of this id.
        """
        if consumer_id in self.assignment:
            raise ConsumerExistsError(
                f"group {self.group_id!r} has a member {consumer_id!r} already; "
                "choose another consumer id, or remove the first one"
            )
        self._turns[consumer_id] = 0
        return self._rebalance([*self.assignment, consumer_id])

    def remove_member(self, consumer_id: str) -> set[str]:
        """Let a consumer leave; what it had in flight is delivered to the next owner.

        Raises:
            UnknownConsumerError: there is no such member.
        """
        self.check_member(consumer_id)
        del self._turns[consumer_id]
        return self._rebalance([member for member in self.assignment if member != consumer_id])

    def reassign(self) -> set[str]:
        """Take all partitions away and deal them out anew to the same members, for tests.

        As if all had left and come back at once: one new generation, and what was in flight is
        delivered again. Answers who owns something.
        """
        for partition in self.owners:
            self.partitions[partition].release()
        self.owners = {}
        self._rebalance(list(self.assignment))
        return set(self.owners.values())

    def check_member(self, consumer_id: str) -> None:
        """Refuse an id that is not a member."""
        if consumer_id not in self.assignment:
            raise UnknownConsumerError(
                f"group {self.group_id!r} has no member {consumer_id!r} (it never joined, or it "
                f"was removed); its members are {list(self.assignment)}"
            )

    def _rebalance(self, members: list[str]) -> set[str]:
        before = self.assignment
        self.assignment = self._assign(members, len(self.partitions), before)
        self.generation += 1
        owners = {p: member for member, owned in self.assignment.items() for p in owned}
        for partition, owner in self.owners.items():
            if owners.get(partition) != owner:
                self.partitions[partition].release()
        for partition, owner in owners.items():
            if self.owners.get(partition) != owner:
                self.owned_since[partition] = self.generation
        self.owners = owners
        return {
            member
            for member in {*before, *members}
            if before.get(member) != self.assignment.get(member)
        }

    def assignments(self) -> dict[str, list[int]]:
        """A copy of who owns what, for callers."""
        return {member: list(owned) for member, owned in self.assignment.items()}

    # Reading

    def plan(
        self, consumer_id: str, room: int, now: float, paused: Collection[int] = ()
    ) -> dict[int, list[Range]]:
        """What to fetch for a poll of `room` messages, by partition; starts with another each time.

        Nothing is read of the `paused` partitions.
        Asks no more partitions than are known to fill the room, so that a deep backlog costs one
        fetch and a shallow one costs one fetch of each partition, all at the same time.
        """
        owned = self.assignment.get(consumer_id, [])
        turn = self._turns.get(consumer_id, 0) % max(len(owned), 1)
        wanted: dict[int, list[Range]] = {}
        promised = 0
        for partition in owned[turn:] + owned[:turn]:
            progress = self.partitions[partition]
            if partition in paused:
                continue
            found = scan.available(progress, room, now)
            if found is None:
                continue
            wanted[partition] = scan.plan(progress, room, now)
            promised += found
            if promised >= room:
                break
        return wanted

    def deliver(
        self, consumer_id: str, partition: int, fetched: Fetched, room: int, now: float
    ) -> Handed:
        """Hand out what was fetched of one partition.

        Raises:
            OffsetLostError: as `scan.deliver`.
        """
        reader = Reader(consumer_id, self.generation, self.incarnation)
        handed = scan.deliver(
            self.partitions[partition], fetched, room, now, reader, self._seen_ids
        )
        self.duplicates_total += handed.duplicates
        return handed

    def next_turn(self, consumer_id: str) -> None:
        """A poll was answered: the next one starts with the next partition."""
        if consumer_id in self._turns:
            self._turns[consumer_id] += 1

    def next_due(self, consumer_id: str) -> float | None:
        """The monotonic time at which a retry of this consumer's partitions may be due."""
        dues = [
            due
            for partition in self.assignment.get(consumer_id, ())
            if (due := self.partitions[partition].retries.next_due()) is not None
        ]
        return min(dues, default=None)

    # Completing

    def progress_of(self, message: DeliveredMessage) -> Progress | None:
        """The progress this delivery belongs to; None if this group did not make it."""
        partition, offset = message.partition, message.offset
        if message.group_incarnation != self.incarnation or not _is_index(offset):
            return None
        known = _is_index(partition) and partition < len(self.partitions)
        return self.partitions[partition] if known else None

    def acknowledge(self, message: DeliveredMessage) -> AckResult:
        """Complete the message of this delivery, if it is still the current one."""
        progress = self.progress_of(message)
        if progress is None:
            return AckResult.STALE
        return progress.acknowledge(message.offset, _delivery_of(message))

    def nack(
        self, message: DeliveredMessage, error: str, *, now: float, monotonic: float
    ) -> AckResult:
        """Count a failure of this delivery, if it is still the current one."""
        progress = self.progress_of(message)
        if progress is None:
            return AckResult.STALE
        result = progress.nack(
            message.offset,
            _delivery_of(message),
            key=optional_key_bytes(message.key),
            error=error,
            now=now,
            monotonic=monotonic,
        )
        if result is AckResult.DEAD_LETTERED and is_dead_letter_topic(self.topic):
            self.dead_lettered_total += 1
            progress.buried(message.offset)  # it is in a dead-letter topic: there it stays
        return result

    def give_back(self, pieces: Sequence[Piece]) -> None:
        """Undo deliveries that never reached their caller."""
        for piece in pieces:
            self.partitions[piece.messages[0].partition].give_back(piece)

    def commit(
        self,
        consumer_id: str,
        offsets: Mapping[int, int] | None = None,
        unseen: Mapping[int, Sequence[Range]] | None = None,
    ) -> dict[int, int]:
        """Commit what was delivered to this consumer, or up to the offsets given: all or nothing.

        Without offsets, what is `unseen` is left out: it was delivered, but nobody looked at it.

        Returns:
            The committed offsets of the partitions concerned.

        Raises:
            UnknownConsumerError, UnknownPartitionError, StaleAssignmentError, InvalidOffsetError.
        """
        self.check_member(consumer_id)
        owned = self.assignment[consumer_id]
        if offsets is None:
            for partition in owned:
                left_out = unseen.get(partition, ()) if unseen else ()
                self.partitions[partition].commit_delivered(consumer_id, left_out)
            return {partition: self.partitions[partition].committed for partition in owned}
        for partition, offset in offsets.items():
            progress = self.partition(partition)
            if partition not in owned:
                raise StaleAssignmentError(
                    f"consumer {consumer_id!r} does not own partition {partition} of group "
                    f"{self.group_id!r} (it owns {owned}); poll again and commit what it owns now"
                )
            progress.check_commit(offset)
        for partition, offset in offsets.items():
            progress = self.partitions[partition]
            progress.complete(progress.committed, offset)
        return {partition: self.partitions[partition].committed for partition in offsets}

    def partition(self, partition: int) -> Progress:
        """The progress in one partition.

        Raises:
            UnknownPartitionError: the topic has no such partition.
        """
        if not 0 <= partition < len(self.partitions):
            raise UnknownPartitionError(
                f"topic {self.topic!r} has no partition {show(partition)}; "
                f"it has partitions 0 to {len(self.partitions) - 1}"
            )
        return self.partitions[partition]


def _delivery_of(message: DeliveredMessage) -> DeliveryKey:
    return (message.generation, message.delivery_attempt, message.epoch)


def _is_index(number: object) -> bool:
    return isinstance(number, int) and number >= 0
