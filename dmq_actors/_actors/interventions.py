"""`GroupInterventions`: what a test may do to a group; see `dmq_actors.testing`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from dmq_actors import events
from dmq_actors._actors.base import BrokerActor
from dmq_actors._actors.log import log
from dmq_actors._core.arguments import check_consumer_id

if TYPE_CHECKING:
    from dmq_actors._core.group_state import GroupState


class GroupInterventions(BrokerActor):
    """The part of a group actor that only tests call."""

    _state: GroupState

    @abstractmethod
    def remove_consumer(self, consumer_id: str) -> dict[str, list[int]]:
        """See `ConsumerGroupActor.remove_consumer`."""

    @abstractmethod
    def _rebalanced(self, changed: set[str]) -> dict[str, list[int]]: ...

    def expire_member(self, consumer_id: str) -> dict[str, list[int]]:
        """Expel a member as if it had been silent for too long; answers the new assignments.

        Raises:
            UnknownConsumerError: the group has no such member.
        """
        self._state.check_member(check_consumer_id(consumer_id))
        log.warning(
            events.CONSUMER_EXPELLED,
            group=self._state.group_id,
            consumer=consumer_id,
            cause="expired by a test",
        )
        return self.remove_consumer(consumer_id)

    def force_rebalance(self) -> dict[str, list[int]]:
        """Take all partitions away and deal them out anew; answers the new assignments.

        One new generation; what was in flight is delivered again, its late acknowledgements are
        stale, waiting polls end.
        """
        return self._rebalanced(self._state.reassign())
