"""A dispatcher for actors that are tested without a broker, and their orderly end: fixtures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from support import WATCHDOG

from dmq_actors import DMQError
from dmq_actors._runtime.dispatcher import Dispatcher
from dmq_actors._runtime.promise import Promise
from dmq_actors._runtime.ref import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dmq_actors._runtime.base import BrokerActor
    from dmq_actors._runtime.ref import BrokerRef


class Stage:
    """Starts actors on one dispatcher, and stops them."""

    def __init__(self, threads: int) -> None:
        self.dispatcher = Dispatcher(threads)
        self.refs: list[BrokerRef[Any]] = []

    def spawn(self, kind: type[BrokerActor], *args: Any) -> BrokerRef[Any]:
        """Start an actor; its last argument is the dispatcher."""
        ref = kind.spawn(*args, self.dispatcher)
        self.refs.append(ref)
        return ref

    def end(self, ref: BrokerRef[Any], why: Callable[[], DMQError] | None = None) -> Promise[Any]:
        """Stop an actor as the broker does."""
        stopped: Promise[Any] = Promise()
        ref.deliver(Stop(why or (lambda: DMQError("the test is over"))), stopped)
        return stopped

    def close(self) -> None:
        try:
            for stopped in [self.end(ref) for ref in reversed(self.refs)]:
                stopped.get(timeout=WATCHDOG)
        finally:
            self.dispatcher.stop()
            for ref in self.refs:  # one that hangs must not fail the tests after this one
                pykka.ActorRegistry.unregister(ref)
        assert self.dispatcher.join(time.monotonic() + WATCHDOG) == []


@pytest.fixture
def one_thread() -> Iterator[Stage]:
    stage = Stage(1)
    yield stage
    stage.close()


@pytest.fixture
def four_threads() -> Iterator[Stage]:
    stage = Stage(4)
    yield stage
    stage.close()


@pytest.fixture(params=[1, 4], ids=["one-thread", "four-threads"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(request.param)
    yield stage
    stage.close()
