"""The pytest fixtures of dmq_actors, found by pytest through the entry point ``dmq_actors``.

Outside of the package, so that pytest can load it without loading the broker: a run that uses no
fixture of these pays nothing, and coverage sees the imports of those that do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dmq_actors import MessageQueue
    from dmq_actors.testing import ManualClock


@pytest.fixture
def message_queue(request: pytest.FixtureRequest) -> MessageQueue:
    """A real broker, fresh for this test; on `manual_clock` if the test uses that, too.

    It is closed within 5 seconds at the end. The test fails if an actor failed and no caller was
    told, a thread is left, or an error of a handler was not asserted.
    """
    new_queue: Callable[..., MessageQueue] = request.getfixturevalue("message_queue_factory")
    if "manual_clock" in request.fixturenames:
        return new_queue(clock=request.getfixturevalue("manual_clock"))
    return new_queue()


@pytest.fixture
def message_queue_factory() -> Iterator[Callable[..., MessageQueue]]:
    """Makes brokers with options, as ``MessageQueue(...)``; all end as `message_queue` does."""
    from dmq_actors.testing.pytest_plugin import BrokersOfTest  # noqa: PLC0415  # see above

    brokers = BrokersOfTest()
    yield brokers.make
    problems = brokers.end()
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands still until it is advanced."""
    from dmq_actors.testing import ManualClock  # noqa: PLC0415  # see above

    return ManualClock()
