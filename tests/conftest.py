"""Fixtures for all tests: a fresh broker each, and nothing of it may be left behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pykka
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dmq_actors import MessageQueue
    from dmq_actors.testing import ManualClock


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread or an actor of ours running."""
    before = set(threading.enumerate())
    # What an earlier test has left failed that test, and is not to be blamed on all later ones.
    actors_before = set(map(str, pykka.ActorRegistry.get_all()))
    yield
    left = [
        thread.name
        for thread in threading.enumerate()
        if thread not in before and thread.is_alive() and not thread.name.startswith("pytest")
    ]
    actors = set(map(str, pykka.ActorRegistry.get_all())) - actors_before
    assert not left, f"threads left behind: {left}"
    assert not actors, f"actors left behind: {sorted(actors)}"


@pytest.fixture
def mq(message_queue_factory: Callable[..., MessageQueue]) -> MessageQueue:
    """A broker on the system's clock; nothing may go wrong in it unseen, see the test kit."""
    return message_queue_factory(call_timeout=10.0)


@pytest.fixture
def clock(manual_clock: ManualClock) -> ManualClock:
    """A clock that stands still until it is advanced."""
    return manual_clock


@pytest.fixture
def manual_mq(
    message_queue_factory: Callable[..., MessageQueue], clock: ManualClock
) -> MessageQueue:
    """A broker on the manual clock of the same test."""
    return message_queue_factory(call_timeout=10.0, clock=clock)
