"""What the pytest fixtures do: brokers of one test, and what must not be left of them.

The fixtures themselves stand in ``_dmq_actors_pytest.py``, which pytest loads at its start.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from dmq_actors.message_queue import MessageQueue

if TYPE_CHECKING:
    from dmq_actors.info import CloseReport

CLOSE_TIMEOUT = 5.0
"""Seconds for all brokers of a test to end."""

_THREADS = "dmq-"


class BrokersOfTest:
    """The brokers that one test makes, and their end. For one thread."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self._queues: list[MessageQueue] = []

    def make(self, **options: Any) -> MessageQueue:
        """A new broker; the options are those of `MessageQueue`."""
        queue = MessageQueue(**options)
        self._queues.append(queue)
        return queue

    def end(self) -> list[str]:
        """Close all; answers what is wrong, in sentences."""
        deadline = time.monotonic() + CLOSE_TIMEOUT
        problems = []
        for queue in reversed(self._queues):
            report = queue.close(timeout=max(deadline - time.monotonic(), 0.0))
            problems += problems_of(queue, report)
        return problems + self._leaked(deadline)

    def _leaked(self, deadline: float) -> list[str]:
        left = []
        for thread in threading.enumerate():
            if thread.name.startswith(_THREADS) and thread not in self._before:
                thread.join(max(deadline - time.monotonic(), 0.0))
                if thread.is_alive():
                    left.append(thread.name)
        if not left:
            return []
        return [f"threads are left: {', '.join(left)}; close every broker that the test makes"]


def problems_of(mq: MessageQueue, report: CloseReport) -> list[str]:
    """What went wrong in a broker that was closed, in sentences; empty if nothing did."""
    problems = []
    if report.still_running:
        problems.append(
            f"the broker did not end within {CLOSE_TIMEOUT:g} s; still running: "
            f"{', '.join(report.still_running)}"
        )
    problems += [
        f"{failure}\nand no caller was told; if the test expects it, assert "
        f"message_queue.take_actor_failures()\n{failure.traceback}"
        for failure in report.actor_failures
    ]
    problems += [
        f"a handler of group {failure.group_id} failed at {failure.message!r}: {failure.error!r}; "
        "if the test expects it, assert message_queue.take_handler_failures()"
        for failure in mq.take_handler_failures()
    ]
    return problems
