"""Fixtures for all tests: a fresh broker each, and nothing of it may be left behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pykka
import pytest

from dmq_actors import MessageQueue
from dmq_actors.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread or an actor of ours running."""
    before = set(threading.enumerate())
    yield
    left = [
        thread.name
        for thread in threading.enumerate()
        if thread not in before and thread.is_alive() and not thread.name.startswith("pytest")
    ]
    actors = [str(ref) for ref in pykka.ActorRegistry.get_all()]
    assert not left, f"threads left behind: {left}"
    assert not actors, f"actors left behind: {actors}"


@pytest.fixture
def mq() -> Iterator[MessageQueue]:
    """A broker on the system's clock."""
    with MessageQueue(call_timeout=10.0) as queue:
        yield queue
    assert queue.close().clean


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until it is advanced."""
    return ManualClock()


@pytest.fixture
def manual_mq(clock: ManualClock) -> Iterator[MessageQueue]:
    """A broker on the manual clock of the same test."""
    with MessageQueue(call_timeout=10.0, clock=clock) as queue:
        yield queue
    assert queue.close().clean
