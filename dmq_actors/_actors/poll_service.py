"""`PollService`: the part of a group actor that answers polls.

A poll that finds nothing stays here as a promise and blocks nobody: a watch in each partition, a
timer for its deadline or a due retry, or a change of the group wakes it. It runs as
a part of its group actor and nowhere else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from dmq_actors import events
from dmq_actors._actors.partition import PartitionActor
from dmq_actors._actors.polls import Poll, Polls, Round
from dmq_actors._core.handout import stamp
from dmq_actors._runtime.abandonment import Abandonment
from dmq_actors._runtime.log import log
from dmq_actors.errors import ActorCrashedError, DMQError, OffsetLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from dmq_actors._core.group_state import GroupState
    from dmq_actors._core.scan import Fetched, Handed, Range
    from dmq_actors._runtime.clock import Clock, Timer
    from dmq_actors._runtime.promise import Promise
    from dmq_actors._runtime.ref import BrokerRef
    from dmq_actors.messages import DeliveredMessage


class Resume(Protocol):
    """How a part of an actor gets back into its actor; see `BrokerRef.resume`."""

    def __call__(self, callback: Callable[..., object], /, *args: Any) -> None: ...


class PollService:
    """The waiting polls of a group, and the fetches that serve them."""

    def __init__(
        self,
        state: GroupState,
        partitions: Sequence[BrokerRef[PartitionActor]],
        clock: Clock,
        resume: Resume,
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._clock = clock
        self._resume = resume
        self._polls = Polls()
        self._timer: Timer | None = None

    def start(
        self,
        consumer_id: str,
        room: int,
        deadline: float | None,
        paused: Collection[int] = (),
    ) -> Promise[list[DeliveredMessage]]:
        """Begin to serve a poll of a member."""
        poll = Poll(consumer_id, room, deadline, paused)
        # The same road as the calls that follow: what gives back must not be overtaken by them.
        poll.promise.when_abandoned(Abandonment(partial(self._resume, self._abandoned, poll)))
        self._polls.add(poll)
        try:
            self.serve(consumer_id)
        except BaseException:  # whoever polls gets this error, and never the messages
            self._polls.remove(poll)
            raise
        return poll.promise

    def serve(self, consumer_id: str | None) -> None:
        """Look whether the polls of this consumer can be answered now."""
        if consumer_id is None or self._polls.in_round(consumer_id):
            return
        polls = self._polls.of(consumer_id)
        if not polls:
            return
        now = self._clock.monotonic()
        wanted = self._state.plan(consumer_id, polls[0].room, now, polls[0].paused)
        if wanted:
            self._fetch(polls[0], wanted)
            return
        for poll in polls:
            if poll.expired(now):
                self._polls.remove(poll)
                poll.promise.resolve([])
        self._set_timer(now, consumer_id)

    def serve_owner(self, partition: int) -> None:
        """Look whether the owner of this partition can be served now."""
        self.serve(self._state.owners.get(partition))

    def serve_all(self) -> None:
        """Look whether anybody can be served now."""
        for consumer_id in self._polls.consumers():
            self.serve(consumer_id)

    def end_wait(self, consumer_ids: set[str]) -> None:
        """A rebalance concerns these consumers: answer their polls with what there is now."""
        now = self._clock.monotonic()
        for consumer_id in consumer_ids:
            for poll in self._polls.of(consumer_id):
                poll.deadline = now
            self.serve(consumer_id)

    def dismiss(self, consumer_id: str) -> None:
        """A consumer was removed, or shall look at what it owns: its polls end with nothing."""
        for poll in self._polls.take_all(consumer_id):
            poll.promise.resolve([])

    def restart(self) -> None:
        """A message of this actor was lost: ask again for whatever may have been in it."""
        self._polls.forget_rounds()
        for progress in self._state.partitions:
            progress.watched = False
        for consumer_id in self._polls.consumers():
            for poll in self._polls.of(consumer_id):
                if poll.answer:  # it was being filled
                    self._finish(poll, copied=True)
        self.serve_all()

    def stop(self, why: Callable[[], DMQError]) -> None:
        """The group ends: tell everybody who waits."""
        if self._timer is not None:
            self._timer.cancel()
        for consumer_id in self._polls.consumers():
            for poll in self._polls.take_all(consumer_id):
                poll.promise.fail(why())

    # A round: fetch from each partition that has something, then answer

    def _fetch(self, poll: Poll, wanted: dict[int, list[Range]]) -> None:
        progress = self._state.partitions
        round_ = Round(poll, {partition: progress[partition].epoch for partition in wanted})
        round_.missing = len(wanted)
        self._polls.start_round(round_)
        for partition, ranges in wanted.items():
            tell = partial(self._resume, self._appended, partition)
            fetched = self._partitions[partition].call(
                PartitionActor.fetch, ranges, self._state.group_id, tell
            )
            fetched.when_done(partial(self._resume, self._fetched, round_, partition))

    def _fetched(self, round_: Round, partition: int, promise: Promise[Fetched]) -> None:
        try:
            fetched: Fetched = promise.peek()
        except DMQError as error:
            round_.error = error
        except Exception as error:  # noqa: BLE001  # a fault of the partition: the poll's error
            round_.error = ActorCrashedError(f"the fetch failed ({error!r}); poll again")
        else:
            progress = self._state.partitions[partition]
            # Where several threads run actors, the watch may have fired before we come to this.
            if fetched.watched and progress.known_end <= fetched.next_offset:
                progress.watched = True
                progress.known_end = fetched.next_offset
            round_.results[partition] = fetched
        round_.missing -= 1
        if round_.missing == 0 and self._polls.is_current(round_):
            self._polls.end_round(round_)
            self._answer(round_)

    def _answer(self, round_: Round) -> None:
        poll = round_.poll
        if self._polls.is_waiting(poll):
            try:
                copied = self._collect(round_)
            except Exception as error:  # a fault of ours: it must not leave anybody waiting
                self._polls.remove(poll)
                self._state.give_back(poll.answer)
                poll.promise.fail(ActorCrashedError(f"the poll failed ({error!r}); poll again"))
                raise
            if poll.answer:
                self._finish(poll, copied=copied)
            elif round_.error is not None:
                self._polls.remove(poll)
                poll.promise.fail(round_.error)
        self.serve(poll.consumer_id)

    def _finish(self, poll: Poll, *, copied: bool) -> None:
        self._polls.remove(poll)
        self._state.next_turn(poll.consumer_id)
        poll.promise.resolve(poll.answer, partial(stamp, copied=copied))

    def _collect(self, round_: Round) -> bool:
        """Fill the answer of the round's poll; True if values must be copied for the reader."""
        poll, partitions = round_.poll, self._state.partitions
        now, copied = self._clock.monotonic(), False
        for partition, epoch in round_.epochs.items():
            fetched = round_.results.get(partition)
            room = poll.left
            if fetched is None or room == 0 or partitions[partition].epoch != epoch:
                continue
            position = partitions[partition].position
            try:
                handed = self._state.deliver(poll.consumer_id, partition, fetched, room, now)
            except OffsetLostError as error:
                round_.error = error
                continue
            poll.answer += handed.pieces
            copied = copied or fetched.holds_copies
            self._log(handed, partition, position)
        return copied

    def _log(self, handed: Handed, partition: int, position: int) -> None:
        state = self._state
        if handed.lost is not None:
            log.warning(
                events.OFFSET_OUT_OF_RANGE,
                group=state.group_id,
                topic=state.topic,
                partition=partition,
                position=position,
                resumed_at=handed.lost[1],
            )
        if handed.duplicates:
            log.info(
                events.MESSAGE_DUPLICATED,
                group=state.group_id,
                partition=partition,
                count=handed.duplicates,
            )

    # What wakes a waiting poll

    def _appended(self, partition: int, next_offset: int) -> None:
        progress = self._state.partitions[partition]
        progress.watched = False
        progress.known_end = max(progress.known_end, next_offset)
        self.serve_owner(partition)

    def _abandoned(self, poll: Poll) -> None:
        if self._polls.remove(poll):
            poll.promise.resolve([])
        elif poll.answer:
            answer, poll.answer = poll.answer, []
            self._state.give_back(answer)
            self.serve_all()

    def _set_timer(self, now: float, *consumer_ids: str) -> None:
        """Be back when one of these consumers has waited long enough, or a retry of it is due."""
        dues = [poll.deadline for waiting in consumer_ids for poll in self._polls.of(waiting)]
        retries = [
            self._state.next_due(waiting) for waiting in consumer_ids if self._polls.of(waiting)
        ]
        dues += [due for due in retries if due is not None and due > now]
        due = min((due for due in dues if due is not None), default=None)
        # A timer that is due already is on its way; it looks after everybody.
        if due is None or (self._timer is not None and self._timer.due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(due, partial(self._resume, self._timer_fired))

    def _timer_fired(self) -> None:
        self._timer = None
        self.serve_all()
