"""`SessionCalls`: the part of a group's protocol that `Consumer` objects speak.

Each call brings the `Session` it was made with, so the work of a consumer that is no member any
more is refused, also when there is a new one of its id.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING

from dmq_actors import events
from dmq_actors._actors.sessions import expelled_error
from dmq_actors._core.handout import unstamp
from dmq_actors._runtime.base import BrokerActor
from dmq_actors._runtime.log import log
from dmq_actors._runtime.promise import Promise
from dmq_actors.config import AckResult
from dmq_actors.errors import StaleAssignmentError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dmq_actors._actors.poll_service import PollService
    from dmq_actors._actors.session import Assignment, Session
    from dmq_actors._actors.sessions import Sessions
    from dmq_actors._core.group_state import GroupState
    from dmq_actors._core.scan import Range
    from dmq_actors.messages import DeliveredMessage


class SessionCalls(BrokerActor):
    """What the consumer objects of a group ask of it."""

    _state: GroupState
    _polls: PollService
    _sessions: Sessions

    # Members

    def join(self, session: Session) -> Assignment:
        """Let a consumer join and rebalance at once.

        Raises:
            ConsumerExistsError: the group has a member of this id.
        """
        changed = self._state.add_member(session.consumer_id)
        self._sessions.add(session)
        self._rebalanced(changed)
        return session.assignment

    def leave(self, session: Session, unseen: Sequence[DeliveredMessage] = ()) -> None:
        """Let a consumer leave; what it was given and did not look at counts as not delivered."""
        if self._sessions.is_current(session):
            self._state.give_back(unstamp(unseen, session.consumer_id))
            self._remove(session.consumer_id, "it was closed")

    def expel(self, session: Session, cause: str) -> None:
        """Take its membership from a consumer that does not work any more."""
        if self._sessions.is_current(session):
            group, consumer = self._state.group_id, session.consumer_id
            log.warning(events.CONSUMER_EXPELLED, group=group, consumer=consumer, cause=cause)
            self._remove(consumer, cause)

    def _remove(self, consumer_id: str, cause: str) -> dict[str, list[int]]:
        """A member is one no more: its polls end, and its consumer object will know why."""
        changed = self._state.remove_member(consumer_id)
        why = partial(expelled_error, self._state.group_id, consumer_id, cause)
        self._sessions.end(consumer_id, why)
        self._polls.dismiss(consumer_id)
        return self._rebalanced(changed)

    @abstractmethod
    def _rebalanced(self, changed: set[str]) -> dict[str, list[int]]: ...

    # Reading

    def poll_session(
        self,
        session: Session,
        heard: Assignment,
        room: int,
        deadline: float | None,
        paused: Collection[int],
        wakeups: int,
    ) -> Promise[list[DeliveredMessage]]:
        """As `poll`, for a consumer that has heard of this assignment and of so many wake-ups.

        Answered with ``[]`` at once, and whenever that changes, if there is news.
        """
        self._sessions.check(session)
        if heard.since != session.assignment.since or wakeups != session.wakeups:
            return Promise.resolved([])
        promise = self._polls.start(session.consumer_id, room, deadline, paused)
        self._sessions.poll_began(session, promise)
        return promise

    def wake(self, session: Session) -> None:
        """End what this consumer waits for."""
        if self._sessions.is_current(session):
            self._polls.dismiss(session.consumer_id)

    def touch(self, session: Session, at: float) -> None:
        """A consumer worked through what it had polled, at this monotonic time."""
        self._sessions.saw_working(session, at)

    def give_back(self, session: Session, messages: Sequence[DeliveredMessage]) -> None:
        """Undo deliveries: these messages were not looked at, and count as not delivered."""
        self._sessions.saw(session.consumer_id)
        ours = [message for message in messages if self._state.progress_of(message) is not None]
        self._state.give_back(unstamp(ours, session.consumer_id))
        self._polls.serve_all()

    # Completing

    def acknowledge_many(self, messages: Sequence[DeliveredMessage]) -> list[AckResult]:
        """Complete these messages, as far as their deliveries are still the current ones."""
        results = [self._state.acknowledge(message) for message in messages]
        partitions = {
            message.partition
            for message, result in zip(messages, results, strict=True)
            if result is not AckResult.STALE
        }
        for partition in partitions:
            self._worked(partition)
        return results

    def _worked(self, partition: int) -> None:
        """The owner of a partition has completed something of it."""
        self._sessions.saw(self._state.owners.get(partition))
        self._polls.serve_owner(partition)

    def commit_session(
        self,
        session: Session,
        heard: Assignment,
        delivered: Collection[int],
        offsets: Mapping[int, int] | None,
        unseen: Mapping[int, Sequence[Range]],
    ) -> tuple[dict[int, int], list[int]]:
        """As `commit`, for a consumer that has heard of this assignment.

        Returns:
            The committed offsets, and which of the partitions that it had something `delivered`
            of are lost.

        Raises:
            StaleAssignmentError: `offsets` name a partition that has changed hands since.
            UnknownPartitionError, InvalidOffsetError: as `commit`.
        """
        self._sessions.check(session)
        if offsets is not None:
            self._check_owned(session, heard, offsets)
        committed = self._state.commit(session.consumer_id, offsets, unseen)
        self._sessions.saw(session.consumer_id)
        self._polls.serve(session.consumer_id)
        return committed, self._lost(session, heard, delivered)

    def offsets(
        self, session: Session, heard: Assignment, partitions: Collection[int]
    ) -> dict[int, tuple[int, int]]:
        """By partition, the committed and the current offset.

        Raises:
            UnknownPartitionError: the topic has no such partition.
            StaleAssignmentError: one of them is not, or no longer, owned by this consumer.
        """
        self._sessions.check(session)
        self._check_owned(session, heard, partitions)
        progress = self._state.partitions
        return {p: (progress[p].committed, progress[p].position) for p in partitions}

    def check_session(
        self, session: Session, heard: Assignment, partitions: Collection[int]
    ) -> None:
        """Refuse work in partitions that this consumer does not own as it believes.

        Raises:
            StaleAssignmentError: it does not.
        """
        self._sessions.check(session)
        self._check_owned(session, heard, partitions)

    def _check_owned(
        self, session: Session, heard: Assignment, partitions: Collection[int]
    ) -> None:
        for partition in partitions:
            self._state.partition(partition)
        if lost := self._lost(session, heard, partitions):
            raise StaleAssignmentError(
                f"consumer {session.consumer_id!r} does not own {_partitions(lost)} of group "
                f"{self._state.group_id!r}, or lost it since it polled; it owns "
                f"{sorted(session.assignment.since)}. Poll again, and work with what it owns then"
            )

    @staticmethod
    def _lost(session: Session, heard: Assignment, partitions: Collection[int]) -> list[int]:
        now, before = session.assignment.since, heard.since
        return sorted(p for p in partitions if p not in before or now.get(p) != before[p])


def _partitions(numbers: Sequence[int]) -> str:
    return f"partition {numbers[0]}" if len(numbers) == 1 else f"partitions {list(numbers)}"
