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

from dmq_actors._core.range_map import RangeMap
from dmq_actors._core.retries import RetryQueue
from dmq_actors.config import AckResult, Delivery
from dmq_actors.errors import InvalidOffsetError

if TYPE_CHECKING:
    from dmq_actors._core.handout import Handout
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

    def acknowledge(self, offset: int, generation: int, attempt: int) -> AckResult:
        """Complete the message of this delivery."""
        if self.config.delivery is Delivery.AT_MOST_ONCE:
            return AckResult.COMPLETED
        if not self._is_current(offset, generation, attempt):
            return AckResult.STALE
        self.complete(offset, offset + 1)
        return AckResult.COMPLETED

    def nack(
        self,
        offset: int,
        generation: int,
        attempt: int,
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
        if not self._is_current(offset, generation, attempt):
            return AckResult.STALE
        before = self.failures.get(offset)
        count = before.count + 1 if before else 1
        due = monotonic + self._backoff(count)
        self.failures[offset] = Failure(count, error, before.first if before else now, now, due)
        if count >= self.config.max_failures:
            self.retries.take(offset)
            self.burying.add(offset)
            return AckResult.DEAD_LETTERED
        self.retries.wait(offset, key, due)
        return AckResult.RETRYING

    def buried(self, offset: int) -> None:
        """The dead letter of this offset is stored: it is completed."""
        if offset in self.burying:
            self.burying.discard(offset)
            self.complete(offset, offset + 1)

    def burial_failed(self, offset: int, key: bytes | None, monotonic: float) -> None:
        """The dead letter could not be stored: the message stays pending, and is tried again."""
        if offset not in self.burying:
            return
        self.burying.discard(offset)
        failure = self.failures[offset]
        due = monotonic + max(self._backoff(failure.count), 1.0)
        self.failures[offset] = replace(failure, due=due)
        if offset < self.position:
            self.retries.wait(offset, key, due)

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
        self.advance()

    def advance(self) -> None:
        """Move `committed` to the end of the contiguous prefix of completed offsets."""
        end = self.completed.run_end(self.committed)
        if end > self.committed:
            self.committed = end
            self.position = max(self.position, end)
            self.attempts.remove_below(end)
            self.skipped.remove_below(end)

    def commit_delivered(self, consumer_id: str) -> None:
        """Complete what was delivered to this consumer and not nacked, and what a seek skipped."""
        pending = RangeMap[bool]()
        for offset in sorted({*self.retries.waiting, *self.burying}):
            pending.set(offset, offset + 1, value=True)
        ranges = [(start, end) for start, end, to in self.in_flight if to.owner == consumer_id]
        ranges += [(start, end) for start, end, _ in self.skipped]
        for start, end in ranges:
            for low, high in list(pending.gaps(start, end)):
                self.complete(low, high)
        self.skipped.clear()

    def check_commit(self, offset: int) -> None:
        """Refuse an offset that cannot be committed; it is the next offset to read."""
        if not self.committed <= offset <= self.position:
            raise InvalidOffsetError(
                f"cannot commit offset {offset} of partition {self.partition}: it must be at least "
                f"the committed offset {self.committed} and at most the current offset "
                f"{self.position} (a committed offset is the next one to read, so last + 1)"
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

    def seek(self, target: int, end: int) -> None:
        """Move the position in a log that ends at `end`; `committed` follows only downwards.

        Waiting retries are dropped. Going back, an at-least-once group forgets what it completed
        from there on and delivers it again; an exactly-once group remembers.
        """
        self.known_end = max(self.known_end, end)
        keeps_done = self.config.delivery is Delivery.EXACTLY_ONCE
        for offset in self.retries.between(0, self.position):
            if offset >= target:
                self._withdraw(offset, offset + 1)
            else:
                self.skipped.set(offset, offset + 1, value=True)
        self.retries.clear()
        for offset, failure in self.failures.items():
            self.failures[offset] = replace(failure, due=0.0)
        if target > self.position:
            self.skipped.set(self.position, target, value=True)
        elif target < self.position:
            self.skipped.remove_from(target)
            if not keeps_done:
                for low, high, _ in self.completed.within(target, max(self.completed.end, target)):
                    self.attempts.remove(low, high)
                self._withdraw(target, max(self.in_flight.end, target))
                self.completed.remove_from(target)
        self.position = target
        self.committed = min(self.committed, target)
        self.epoch += 1

    def give_back(self, offset: int, generation: int, attempt: int, key: bytes | None) -> None:
        """Undo a delivery that never reached its caller (a cancelled poll)."""
        if self.config.delivery is Delivery.AT_MOST_ONCE:
            if offset == self.position - 1 and offset == self.committed - 1:
                self.completed.remove_from(offset)
                self.position = self.committed = offset
            return
        if self._is_current(offset, generation, attempt) and offset not in self.retries:
            self.in_flight.remove(offset, offset + 1)
            self.attempts.set(offset, offset + 1, attempt - 1)
            self.retries.wait(offset, key)

    def _withdraw(self, start: int, end: int) -> None:
        for low, high, handout in self.in_flight.within(start, end):
            self.attempts.set(low, high, handout.attempt)
        self.in_flight.remove(start, end)

    def _is_current(self, offset: int, generation: int, attempt: int) -> bool:
        handout = self.in_flight.get(offset)
        return (
            handout is not None
            and handout.generation == generation
            and handout.attempt == attempt
            and offset not in self.burying
        )

    def _backoff(self, failures: int) -> float:
        if self.config.retry_backoff == 0:
            return 0.0
        exponent = min(failures - 1, 62)
        return min(self.config.retry_backoff * 2.0**exponent, self.config.retry_backoff_max)
