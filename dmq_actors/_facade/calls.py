"""`BrokerCalls`: what the parts of the facade share: one message to an actor, one bounded wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dmq_actors._runtime.here import check_may_wait, here

if TYPE_CHECKING:
    from dmq_actors._actors.broker import Broker
    from dmq_actors._actors.coordinator import CoordinatorActor
    from dmq_actors._actors.group import ConsumerGroupActor
    from dmq_actors._runtime.promise import Promise
    from dmq_actors._runtime.ref import BrokerRef

T = TypeVar("T")


class BrokerCalls:
    """The way from a method of the facade to an actor and back."""

    _broker: Broker
    _call_timeout: float

    @property
    def _coordinator(self) -> BrokerRef[CoordinatorActor]:
        self._check()
        return self._broker.coordinator

    def _group(self, group_id: str) -> BrokerRef[ConsumerGroupActor]:
        self._check()
        return self._broker.directory.group(group_id).ref

    def _check(self) -> None:
        self._broker.check_open()
        if here.current is not None:
            check_may_wait()

    def _wait(self, promise: Promise[T]) -> T:
        return promise.get(timeout=self._call_timeout)
