"""`Progress`: how far one group has come in one partition.

The life of an offset, seen by one group::

    ahead ──deliver──► in flight ──ack, commit──────────────► completed
      ▲                   │  ▲                                    ▲
      │                 nack │ deliver again                      │
      │                   ▼  │                                    │
      │                 waiting ──max_failures──► burying ──stored┘
      └─ release (the owner left), seek backwards

*ahead*: at or above `position`, or held behind a waiting message of its key. *burying*: on its way
to the dead-letter topic. Everything below `committed` is completed. An event that does not fit the
state of an offset (a late ack, say) changes nothing and says so.

Always true: ``committed <= position``; an offset is never both completed and in flight; what waits
is below `position`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmq_actors._core.arguments import show
from dmq_actors._core.partitioners import optional_key_bytes
from dmq_actors._core.range_map import RangeMap
from dmq_actors._core.retries import RetryQueue
from dmq_actors.config import AckResult, Delivery
from dmq_actors.errors import InvalidOffsetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dmq_actors._core.handout import Handout, Piece
    from dmq_actors.config import GroupConfig


@dataclass(frozen=True, slots=True)
class Failure:
    """What a group remembers of a message that failed; times in seconds since 1970 UTC."""

    count: int
    error: str
    first: float
    last: float
    due: float
    """Monotonic seconds before which it is not delivered again."""


DeliveryKey = tuple[int, int, int]
"""What names a delivery of an offset: generation, attempt, epoch."""


class Progress:
    """The state of one partition within a group. Reading ahead is in `dmq_actors._core.scan`."""

    def __init__(self, partition: int, start_offset: int, config: GroupConfig) -> None:
        self.partition = partition
        self.config = config
        self.committed = start_offset
        self.position = start_offset
        self.completed: RangeMap[bool] = RangeMap()
        self.in_flight: RangeMap[Handout] = RangeMap()
        self.attempts: RangeMap[int] = RangeMap()
        self.skipped: RangeMap[bool] = RangeMap()
        self.retries = RetryQueue(config.retry_order)
        self.failures: dict[int, Failure] = {}
        self.burying: set[int] = set()
        self.epoch = 0
        """Grows whenever the position moves other than by reading: older fetches are void."""
        self.known_end = start_offset
        self.watched = False
        """Whether the partition will tell us of messages at or above `known_end`."""
        self.skipped_total = 0

    # Completion

    def acknowledge(self, offset: int, delivery: DeliveryKey) -> AckResult:
        """Complete the message of this delivery."""
        if self.config.delivery is Delivery.AT_MOST_ONCE:
            return AckResult.COMPLETED
        if self._current(offset, delivery) is None:
            return AckResult.STALE
        self.complete(offset, offset + 1)
        return AckResult.COMPLETED

    def nack(
        self,
        offset: int,
        delivery: DeliveryKey,
        *,
        key: bytes | None,
        error: str,
        now: float,
        monotonic: float,
    ) -> AckResult:
        """Count a failure of this delivery; DEAD_LETTERED asks the caller to bury it.

        Raises nothing: a delivery that is over is STALE.
        """
        if self.config.delivery is Delivery.AT_MOST_ONCE:
            return AckResult.COMPLETED
        handout = self._current(offset, delivery)
        if handout is None:
            return AckResult.STALE
        before = self.failures.get(offset)
        count = before.count + 1 if before else 1
        due = monotonic + self._backoff(count)
        self.failures[offset] = Failure(count, error, before.first if before else now, now, due)
        self.in_flight.set(offset, offset + 1, handout._replace(nacked=True))
        if count >= self.config.max_failures:
            self.retries.take(offset)
            self.burying.add(offset)
            return AckResult.DEAD_LETTERED
        self._deliver_again(offset, key, due)
        return AckResult.RETRYING

    def buried(self, offset: int) -> None:
        """The dead letter of this offset is stored: it is completed."""
        if offset in self.burying:
            self.complete(offset, offset + 1)

    def burial_failed(self, offset: int, key: bytes | None, monotonic: float) -> None:
        """The dead letter could not be stored: the message stays pending, and is tried again."""
        if offset not in self.burying:
            return
        self.burying.discard(offset)
        failure = self.failures[offset]
        due = monotonic + max(self._backoff(failure.count), 1.0)
        self.failures[offset] = replace(failure, due=due)
        self._deliver_again(offset, key, due)

    def complete(self, start: int, end: int) -> None:
        """All of [start, end) is done, whatever state it was in."""
        self.in_flight.remove(start, end)
        self.completed.set(start, end, value=True)
        if self.failures:
            lone = end - start == 1
            for offset in (start,) if lone else [o for o in self.failures if start <= o < end]:
                self.failures.pop(offset, None)
        if self.retries:
            for offset in self.retries.between(start, end):
                self.retries.take(offset)
        if self.burying:
            self.burying -= {offset for offset in self.burying if start <= offset < end}
        self.advance()

    def advance(self) -> None:
        """Move `committed` to the end of the contiguous prefix of completed offsets."""
        end = self.completed.run_end(self.committed)
        if end > self.committed:
            self.committed = end
            self.position = max(self.position, end)
            self.attempts.remove_below(end)
            self.skipped.remove_below(end)

    def commit_delivered(self, consumer_id: str, unseen: Iterable[tuple[int, int]] = ()) -> None:
        """Complete what was delivered to this consumer and not nacked, and what a seek skipped.

        The ranges that are `unseen` are left as they are.
        """
        left_out = RangeMap[bool]()
        for offset in sorted(self.burying):
            left_out.set(offset, offset + 1, value=True)
        for start, end in unseen:
            left_out.set(start, end, value=True)
        ranges = [
            (start, end)
            for start, end, handout in self.in_flight
            if handout.owner == consumer_id and not handout.nacked
        ]
        ranges += [(start, end) for start, end, _ in self.skipped]
        for start, end in ranges:
            for low, high in list(left_out.gaps(start, end)):
                self.complete(low, high)
        self.skipped.clear()

    def check_commit(self, offset: int) -> None:
        """Refuse an offset that cannot be committed; it is the next offset to read."""
        if not self.committed <= offset <= self.position:
            raise InvalidOffsetError(
                f"cannot commit offset {show(offset)} of partition {self.partition}: "
                f"it must be at least the committed offset {self.committed} and at most the "
                f"current offset {self.position}; a committed offset is the next one to read"
            )

    # Moves

    def release(self) -> None:
        """The owner left or lost the partition: what it had in flight is ahead again."""
        for start, end, handout in self.in_flight:
            self.attempts.set(start, end, handout.attempt)
        self.in_flight.clear()
        self.retries.clear()
        self.skipped.clear()
        self.position = self.committed
        self.epoch += 1

    def lose(self, end: int) -> None:
        """Retention took what is below `end`: count what was not read, and go on there."""
        for start, past in list(self.unread_below(end)):
            self.skipped_total += past - start
            self.complete(start, past)
        self.position = max(self.position, end)

    def unread_below(self, end: int) -> Iterator[tuple[int, int]]:
        """What lies from the position to `end` and is neither completed nor in a member's hand."""
        for low, high in self.completed.gaps(self.position, end):
            start = low
            for taken, past, handout in self.in_flight.within(low, high):
                if not handout.nacked:
                    if start < taken:
                        yield start, taken
                    start = past
            if start < high:
                yield start, high

    def seek(self, target: int, base: int, end: int) -> None:
        """Move the position in a log of [base, end); `committed` follows only downwards.

        Waiting retries are dropped. Going back, an at-least-once group forgets what it completed
        from there on and delivers it again; an exactly-once group remembers.
        """
        self.known_end = max(self.known_end, end)
        before = self.position
        self.lose(base)
        for offset in self.retries.between(0, min(target, self.position)):
            self.skipped.set(offset, offset + 1, value=True)
        self.retries.clear()
        for offset, failure in self.failures.items():
            self.failures[offset] = replace(failure, due=0.0)
        if target > self.position:
            self.skipped.set(self.position, target, value=True)
        elif target < before:
            self.skipped.remove_from(target)
            self._replay(target)
        self.position = target
        self.committed = min(self.committed, target)
        self.epoch += 1
        self.advance()  # an exactly-once group keeps what it has completed

    def _replay(self, target: int) -> None:
        """Put what was delivered from `target` on ahead again, as far as the delivery allows."""
        keeps_done = self.config.delivery is Delivery.EXACTLY_ONCE
        for start, end, handout in self.in_flight.within(target, max(self.in_flight.end, target)):
            if handout.nacked or not keeps_done:
                self.attempts.set(start, end, handout.attempt)
                self.in_flight.remove(start, end)
        if not keeps_done:
            for start, end, _ in self.completed.within(target, max(self.completed.end, target)):
                self.attempts.remove(start, end)
            self.completed.remove_from(target)

    def give_back(self, piece: Piece) -> None:
        """Undo deliveries that never reached their caller (a cancelled poll)."""
        first, last = piece.messages[0].offset, piece.messages[-1].offset
        if self.config.delivery is Delivery.AT_MOST_ONCE:
            # Only the last delivery can be undone: what came after it is completed.
            if piece.handout.epoch == self.epoch and last + 1 == self.position == self.committed:
                self.completed.remove_from(first)
                self.position = self.committed = first
                self.epoch += 1
            return
        for message in piece.messages:
            offset = message.offset
            if self.in_flight.get(offset) == piece.handout:
                self.in_flight.remove(offset, offset + 1)
                self.attempts.set(offset, offset + 1, piece.handout.attempt - 1)
                self._deliver_again(offset, optional_key_bytes(message.key), due=0.0)

    def _deliver_again(self, offset: int, key: bytes | None, due: float) -> None:
        self.skipped.remove(offset, offset + 1)  # this is newer than the seek that went past it
        if offset < self.position:
            self.retries.wait(offset, key, due)
        else:  # after a seek back: reading on will come to it, but fetches under way left it out
            self.epoch += 1

    def _current(self, offset: int, delivery: DeliveryKey) -> Handout | None:
        """The handout of this delivery, if it is the last one of its message and not over."""
        handout = self.in_flight.get(offset)
        if handout is None or offset in self.burying:
            return None
        same = (handout.generation, handout.attempt, handout.epoch) == delivery
        return handout if same else None

    def _backoff(self, failures: int) -> float:
        if self.config.retry_backoff == 0:
            return 0.0
        exponent = min(failures - 1, 62)
        return min(self.config.retry_backoff * 2.0**exponent, self.config.retry_backoff_max)
