"""`IdleWatch`: the part of a group that tells when there is nothing left to do.

Looks after each message of its actor, for every way to completion is one; costs a look at an empty
list while nobody waits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dmq_actors._runtime.promise import Promise

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._actors.partition import Bounds
    from dmq_actors._actors.poll_service import Resume
    from dmq_actors._core.group_state import GroupState
    from dmq_actors.errors import DMQError


class IdleWatch:
    """Who waits until all is completed, and no worker has anything in hand."""

    def __init__(
        self,
        state: GroupState,
        bounds: Callable[[], Promise[list[Bounds]]],
        resume: Resume,
        workers_wait: Callable[[], bool],
    ) -> None:
        self._state = state
        self._bounds = bounds
        self._resume = resume
        self._workers_wait = workers_wait
        self._waiters: list[Promise[None]] = []
        self._looking = False

    def wait(self) -> Promise[None]:
        """A promise that is kept when the group is idle."""
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def look(self) -> None:
        """Something has happened: see whether the group is idle now."""
        if not self._waiters or self._looking or not self._may_be_idle():
            return
        self._looking = True
        self._bounds().when_done(partial(self._resume, self._found))

    def restart(self) -> None:
        """A message was lost: it may have been the answer."""
        self._looking = False

    def stop(self, why: Callable[[], DMQError]) -> None:
        """The group ends."""
        waiters, self._waiters = self._waiters, []
        for promise in waiters:
            promise.fail(why())

    def _may_be_idle(self) -> bool:
        behind = any(p.committed < p.known_end for p in self._state.partitions)
        return not behind and self._workers_wait()

    def _found(self, bounds: Promise[list[Bounds]]) -> None:
        self._looking = False
        if any(lags(self._state, bounds.peek()).values()) or not self._may_be_idle():
            return
        waiters, self._waiters = self._waiters, []
        for promise in waiters:
            promise.resolve()


def lags(state: GroupState, bounds: list[Bounds]) -> dict[int, int]:
    """By partition, how many messages are not completed yet."""
    return {
        progress.partition: max(end - max(progress.committed, base), 0)
        for progress, (base, end) in zip(state.partitions, bounds, strict=True)
    }
