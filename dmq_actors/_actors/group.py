"""`ConsumerGroupActor`: owns the state of one group, and is the protocol of its members.

Polls are answered by its `PollService`, dead letters brought away by its `Burials`; both run as
parts of this actor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmq_actors import events
from dmq_actors._actors.burials import Burials
from dmq_actors._actors.idle_watch import IdleWatch, lags
from dmq_actors._actors.interventions import GroupInterventions
from dmq_actors._actors.partition import PartitionActor
from dmq_actors._actors.poll_service import PollService
from dmq_actors._actors.sessions import Sessions
from dmq_actors._core.arguments import (
    check_bool,
    check_consumer_id,
    check_delivered,
    check_int,
    check_offsets,
    check_seconds,
    show,
)
from dmq_actors._core.dead_letters import is_dead_letter_topic
from dmq_actors._runtime.log import log
from dmq_actors._runtime.promise import Promise, gather
from dmq_actors.config import BEGINNING, END, AckResult
from dmq_actors.errors import DMQError, InvalidOffsetError, InvalidTypeError
from dmq_actors.info import GroupInfo, GroupPartitionInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dmq_actors._actors.partition import Bounds
    from dmq_actors._actors.session import Assignment, Session
    from dmq_actors._core.batch import Batch
    from dmq_actors._core.group_state import GroupState
    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.ref import BrokerRef
    from dmq_actors._runtime.scheduler import Scheduler
    from dmq_actors.messages import DeliveredMessage

_WARN_INTERVAL = 60.0


class ConsumerGroupActor(GroupInterventions):
    """The state of one consumer group; nobody else touches it."""

    def __init__(
        self,
        state: GroupState,
        partitions: Sequence[BrokerRef[PartitionActor]],
        store_dead_letter: Callable[[int, Batch], Promise[Any]],
        clock: Clock,
        dispatcher: Scheduler,
    ) -> None:
        super().__init__(f"group-{state.group_id}", dispatcher)
        self._state = state
        self._partitions = partitions
        self._clock = clock
        resume = self._ref.resume
        self._polls = PollService(state, partitions, clock, resume)
        self._burials = Burials(
            state, partitions, store_dead_letter, clock, resume, self._polls.serve_owner
        )
        self._idle = IdleWatch(state, self._all_bounds, resume, self._workers_wait)
        self._sessions = Sessions(state, clock, resume, self.expel)
        self._warned_at = float("-inf")

    # Members

    def add_consumer(self, consumer_id: str) -> dict[str, list[int]]:
        """Let a consumer join and rebalance at once; answers the new assignments.

        Raises:
            ConsumerExistsError: the group has a member of this id.
        """
        return self._rebalanced(self._state.add_member(check_consumer_id(consumer_id)))

    def remove_consumer(self, consumer_id: str) -> dict[str, list[int]]:
        """Let a consumer leave and rebalance at once; answers the new assignments.

        Its waiting polls end with ``[]``; what it had in flight goes to the next owners.

        Raises:
            UnknownConsumerError: the group has no such member.
        """
        return self._remove(check_consumer_id(consumer_id), "somebody called remove_consumer")

    # Reading

    def poll(
        self, consumer_id: str, max_messages: int = 100, timeout: float | None = 0.0
    ) -> Promise[list[DeliveredMessage]]:
        """Up to `max_messages` for this consumer; waits up to `timeout` seconds for the first.

        An id that holds no partitions gets ``[]``. None waits until there is something.
        """
        check_consumer_id(consumer_id)
        check_int("max_messages", max_messages, minimum=1)
        now = self._clock.monotonic()
        deadline = None if timeout is None else now + check_seconds("timeout", timeout)
        if consumer_id not in self._state.assignment:
            self._warn_unknown(consumer_id, now)
            return Promise.resolved([])
        return self._polls.start(consumer_id, max_messages, deadline)

    def seek_session(
        self, session: Session, heard: Assignment, partition: int, offset: int
    ) -> Promise[int]:
        """As `seek`, by the owner of the partition.

        Raises:
            StaleAssignmentError: the partition is not, or no longer, owned by this consumer.
            InvalidOffsetError: as `seek`.
        """
        self._state.partition(check_int("partition", partition, minimum=0))
        self.check_session(session, heard, (partition,))
        return self.seek(partition, offset)

    def seek(self, partition: int, offset: int) -> Promise[int]:
        """Move the position of the group; answers the offset it was moved to.

        `offset` may be `BEGINNING` or `END`, which are resolved once, now.

        Raises:
            UnknownPartitionError: the topic has no such partition.
            InvalidOffsetError: outside of what is retained; the message names the range.
        """
        check_int("partition", partition, minimum=0)
        check_int("offset", offset, minimum=END)
        self._state.partition(partition)
        bounds = self._partitions[partition].call(PartitionActor.bounds)
        return self._after(bounds, self._seek_within, partition, offset)

    def _seek_within(self, bounds: Bounds, partition: int, offset: int) -> int:
        base, end = bounds
        target = {BEGINNING: base, END: end}.get(offset, offset)
        if not base <= target <= end:
            raise InvalidOffsetError(
                f"cannot seek to offset {show(offset)} in partition {partition} of topic "
                f"{self._state.topic!r}: it must be from {base} (BEGINNING) to {end} (END)"
            )
        self._state.partitions[partition].seek(target, base, end)
        self._polls.serve_owner(partition)
        return target

    # Completing

    def commit(self, consumer_id: str, offsets: Mapping[int, int] | None = None) -> dict[int, int]:
        """Commit what was delivered to this consumer, or these offsets; see the facade."""
        check_consumer_id(consumer_id)
        if offsets is not None and type(offsets) is not dict:
            raise InvalidTypeError(
                f"offsets are a plain dict here, found {type(offsets).__name__}; "
                "the code of another mapping must not run in an actor"
            )
        checked = None if offsets is None else check_offsets(offsets)
        committed = self._state.commit(consumer_id, checked)
        self._sessions.saw(consumer_id)
        self._polls.serve(consumer_id)
        return committed

    def acknowledge(
        self,
        message: DeliveredMessage,
        success: bool = True,  # noqa: FBT001, FBT002  # fixed by the original contract
        error: str = "",
    ) -> AckResult | Promise[AckResult]:
        """Complete the message of this delivery, or count a failure of it; see the facade."""
        check_delivered(message)
        if not isinstance(error, str):
            raise InvalidTypeError(f"error is a text, found {type(error).__name__}")
        if check_bool("success", success):
            result = self._state.acknowledge(message)
        else:
            result = self._state.nack(
                message, error, now=self._clock.time(), monotonic=self._clock.monotonic()
            )
            if result is AckResult.DEAD_LETTERED:
                self._sessions.saw(self._state.owners.get(message.partition))
            if result is AckResult.DEAD_LETTERED and not is_dead_letter_topic(self._state.topic):
                return self._burials.start(message)
        if result is not AckResult.STALE:
            self._worked(message.partition)
        return result

    # Telling

    def lag(self) -> Promise[dict[int, int]]:
        """By partition, how many messages are not completed yet."""
        return self._after(self._all_bounds(), self._lags)

    def info(self) -> Promise[GroupInfo]:
        """A snapshot of the group."""
        return self._after(self._all_bounds(), self._describe)

    def _all_bounds(self) -> Promise[list[Bounds]]:
        return gather(partition.call(PartitionActor.bounds) for partition in self._partitions)

    def _lags(self, bounds: list[Bounds]) -> dict[int, int]:
        return lags(self._state, bounds)

    def _describe(self, bounds: list[Bounds]) -> GroupInfo:
        state, behind = self._state, self._lags(bounds)
        return GroupInfo(
            group_id=state.group_id,
            topic=state.topic,
            config=state.config,
            generation=state.generation,
            members=tuple(state.assignment),
            assignments=state.assignments(),
            partitions=tuple(
                GroupPartitionInfo(
                    partition=progress.partition,
                    owner=state.owners.get(progress.partition),
                    committed_offset=progress.committed,
                    current_offset=progress.position,
                    in_flight=progress.in_flight.total,
                    retrying=len(progress.retries.waiting),
                    held=progress.retries.held,
                    skipped_total=progress.skipped_total,
                    lag=behind[progress.partition],
                )
                for progress in state.partitions
            ),
            duplicates_total=state.duplicates_total,
            dead_lettered_total=state.dead_lettered_total,
            restarts=self._restarts,
        )

    def _workers_wait(self) -> bool:
        return self._sessions.workers_wait()

    def when_idle(self) -> Promise[None]:
        """A promise that is kept once all is completed and no worker of a pool has anything."""
        return self._idle.wait()

    def _perform(self, message: Any) -> Any:
        try:
            return super()._perform(message)
        finally:
            self._idle.look()

    # Life

    def _rebalanced(self, changed: set[str]) -> dict[str, list[int]]:
        state = self._state
        log.info(
            events.GROUP_REBALANCED,
            group=state.group_id,
            generation=state.generation,
            members=list(state.assignment),
        )
        consumers = self._sessions.of(changed)
        self._sessions.tell()
        for consumer_id in consumers:
            self._polls.dismiss(consumer_id)
        self._polls.end_wait(changed - consumers)
        return state.assignments()

    def _on_restart(self) -> None:
        self._burials.restart()
        self._idle.restart()
        self._polls.restart()
        self._sessions.restart()

    def _on_stop(self, why: Callable[[], DMQError]) -> int:
        self._sessions.end_all(why)
        self._polls.stop(why)
        self._burials.stop(why)
        self._idle.stop(why)
        return sum(progress.in_flight.total for progress in self._state.partitions)

    def _warn_unknown(self, consumer_id: str, now: float) -> None:
        if now - self._warned_at >= _WARN_INTERVAL:
            self._warned_at = now
            log.warning(events.CONSUMER_UNKNOWN, group=self._state.group_id, consumer=consumer_id)
