"""What the tests of the core share: Hypothesis settings, and a group that reads logs by hand."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from dmq_actors import AckResult, Delivery, GroupConfig, Message, TopicConfig
from dmq_actors._core.batch import Batch, prepare
from dmq_actors._core.group_state import GroupState
from dmq_actors._core.handout import stamp
from dmq_actors._core.options import group_config
from dmq_actors._core.partition_log import PartitionLog
from dmq_actors._core.scan import Fetched
from dmq_actors.errors import OffsetLostError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dmq_actors import DeliveredMessage, StoredMessage
    from dmq_actors._core.handout import Piece
    from dmq_actors._core.progress import Progress
    from dmq_actors._core.scan import Handed, Range

FACTOR = int(os.environ.get("DMQ_EXAMPLES_FACTOR", "1"))
"""Set it to 20 to look for bugs for longer."""

WALL = 1_000_000.0
"""The wall clock of these tests stands at WALL + monotonic."""

INCARNATION = 7

COMPLETED, RETRYING = AckResult.COMPLETED, AckResult.RETRYING
DEAD_LETTERED, STALE = AckResult.DEAD_LETTERED, AckResult.STALE
ALO, EO, AMO = Delivery.AT_LEAST_ONCE, Delivery.EXACTLY_ONCE, Delivery.AT_MOST_ONCE

every_delivery = pytest.mark.parametrize("delivery", list(Delivery))
tracked = pytest.mark.parametrize("delivery", [ALO, EO])


def examples(count: int, *, steps: int = 50) -> settings:
    """Settings of a property: this many examples, and the blob of a failing one."""
    return settings(
        max_examples=count * FACTOR,
        stateful_step_count=steps,
        deadline=None,
        derandomize=False,
        print_blob=True,
        report_multiple_bugs=False,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def batch_of(*messages: Message, config: TopicConfig | None = None) -> Batch:
    """Messages made ready for a topic of one partition."""
    return prepare(config or TopicConfig(), messages, 0)


def ids(count: int, prefix: str = "id") -> list[str]:
    """As many message ids as a broker would draw."""
    return [f"{prefix}-{number}" for number in range(count)]


def append(
    log: PartitionLog, messages: Iterable[Message], config: TopicConfig, now: float = 0.0
) -> list[StoredMessage]:
    """Store messages in a log, with ids that are told from each other by the offset."""
    batch = prepare(config, messages, 0)
    names = [f"broker-{log.next_offset + at}" for at in range(len(batch.messages))]
    return log.append(batch, names, now=WALL + now, monotonic=now)


def offsets(messages: Iterable[StoredMessage]) -> list[int]:
    """The offsets of messages."""
    return [message.offset for message in messages]


@dataclass
class Round:
    """The fetches of one poll, not yet delivered; as a group actor keeps them."""

    consumer: str
    room: int
    epochs: dict[int, int]
    fetched: dict[int, Fetched] = field(default_factory=dict)


class Reading:
    """A group and the logs it reads, wired as the actors wire them, but without any thread.

    `begin` does what a poll does until the partitions have answered, `finish` hands out.
    """

    def __init__(
        self,
        partitions: int = 1,
        *,
        members: Iterable[str] = ("c",),
        topic: str = "t",
        topic_config: TopicConfig | None = None,
        start: list[int] | None = None,
        **options,
    ):
        self.config: GroupConfig = group_config(**options)
        self.topic_config = topic_config or TopicConfig(num_partitions=partitions)
        self.logs = [PartitionLog(topic, number, self.topic_config) for number in range(partitions)]
        self.group = GroupState("g", topic, start or [0] * partitions, self.config, INCARNATION)
        self.now = 0.0
        for member in members:
            self.group.add_member(member)

    @property
    def progress(self) -> Progress:
        """The progress in the only partition, or in the first."""
        return self.group.partitions[0]

    # The partition's side

    def publish(self, *values, key=None, partition=0, message_id=None):
        """Store values; the group hears of it where it left a watch."""
        return self.publish_messages(
            [Message(value, key, message_id=message_id) for value in values], partition
        )

    def publish_messages(self, messages, partition=0):
        stored = append(self.logs[partition], messages, self.topic_config, self.now)
        progress = self.group.partitions[partition]
        if progress.watched:
            progress.watched = False
            progress.known_end = max(progress.known_end, self.logs[partition].next_offset)
        return stored

    def evict_below(self, offset, partition=0):
        """Let retention take everything below an offset."""
        self.logs[partition]._evict_below(offset)

    def fetch(self, partition: int, ranges: list[Range]) -> Fetched:
        log = self.logs[partition]
        log.evict_expired(self.now)
        messages, named = [], {}
        for start, end in ranges:
            messages += log.read(start, end)
            named.update(log.named_in(start, min(end, log.next_offset)))
        watched = bool(ranges) and ranges[-1][1] >= log.next_offset
        return Fetched(messages, log.base_offset, log.next_offset, log.holds_copies, named, watched)

    # The group's side

    def begin(self, consumer="c", room=100) -> Round | None:
        """Plan and fetch; None when there is nothing to fetch."""
        wanted = self.group.plan(consumer, room, self.now)
        if not wanted:
            return None
        state = Round(consumer, room, {p: self.group.partitions[p].epoch for p in wanted})
        for partition, ranges in wanted.items():
            fetched = state.fetched[partition] = self.fetch(partition, ranges)
            if fetched.watched:
                progress = self.group.partitions[partition]
                progress.watched = True
                progress.known_end = max(progress.known_end, fetched.next_offset)
        return state

    def finish(self, state: Round) -> tuple[list[Piece], dict[int, Handed | OffsetLostError]]:
        """Hand out what was fetched, except what a newer epoch has made void."""
        room, pieces, answers = state.room, [], {}
        for partition, epoch in state.epochs.items():
            if room == 0 or self.group.partitions[partition].epoch != epoch:
                continue
            try:
                handed = self.group.deliver(
                    state.consumer, partition, state.fetched[partition], room, self.now
                )
            except OffsetLostError as error:
                answers[partition] = error
                continue
            answers[partition] = handed
            pieces += handed.pieces
            room -= sum(len(piece.messages) for piece in handed.pieces)
        if pieces:
            self.group.next_turn(state.consumer)
        return pieces, answers

    def poll_pieces(self, consumer="c", room=100) -> list[Piece]:
        """Poll without waiting; what is handed out."""
        for _ in range(50):
            state = self.begin(consumer, room)
            if state is None:
                return []
            pieces, answers = self.finish(state)
            if pieces:
                return pieces
            for answer in answers.values():
                if isinstance(answer, OffsetLostError):
                    raise answer
        raise AssertionError("a poll goes round and round without an answer")

    def poll(self, consumer="c", room=100) -> list[DeliveredMessage]:
        """Poll without waiting; the messages as the caller gets them."""
        return stamp(self.poll_pieces(consumer, room), copied=False)

    def ack(self, *messages):
        return [self.group.acknowledge(message) for message in messages]

    def nack(self, message, error="boom"):
        return self.group.nack(message, error, now=WALL + self.now, monotonic=self.now)

    def seek(self, offset, partition=0):
        log = self.logs[partition]
        self.group.partitions[partition].seek(offset, log.base_offset, log.next_offset)

    def lag(self, partition=0):
        log, progress = self.logs[partition], self.group.partitions[partition]
        return max(log.next_offset - max(progress.committed, log.base_offset), 0)


def reading(count=0, **options) -> Reading:
    """A group with one member on one partition that holds this many messages."""
    found = Reading(**options)
    found.publish(*range(count))
    return found


def buried_reading(count=2, **options):
    """As `reading`; all was delivered, and the first message is on its way to the dead letters."""
    found = reading(count, max_failures=1, **options)
    messages = found.poll()
    assert found.nack(messages[0]) is DEAD_LETTERED
    return found, messages


def marks(found: Reading) -> tuple[int, int]:
    """The committed offset and the position in the first partition."""
    return found.progress.committed, found.progress.position
