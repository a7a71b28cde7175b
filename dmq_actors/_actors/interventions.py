"""`GroupInterventions`: what a test may do to a group; see `dmq_actors.testing`."""

from __future__ import annotations

from dmq_actors import events
from dmq_actors._actors.session_calls import SessionCalls
from dmq_actors._core.arguments import check_consumer_id
from dmq_actors._runtime.log import log


class GroupInterventions(SessionCalls):
    """The part of a group actor that only tests call."""

    def expire_member(self, consumer_id: str) -> dict[str, list[int]]:
        """Expel a member as if it had been silent for too long; answers the new assignments.

        Raises:
            UnknownConsumerError: the group has no such member.
        """
        self._state.check_member(check_consumer_id(consumer_id))
        group, cause = self._state.group_id, "it was expired by a test"
        log.warning(events.CONSUMER_EXPELLED, group=group, consumer=consumer_id, cause=cause)
        return self._remove(consumer_id, cause)

    def force_rebalance(self) -> dict[str, list[int]]:
        """Take all partitions away and deal them out anew; answers the new assignments.

        One new generation; what was in flight is delivered again, its late acknowledgements are
        stale, waiting polls end.
        """
        return self._rebalanced(self._state.reassign())
