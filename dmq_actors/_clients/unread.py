"""`UnreadFailures`: nobody shall lose a message without a trace."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from dmq_actors import events
from dmq_actors._runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable


class UnreadFailures:
    """The failed futures of one batch that nobody has read; logged when they are collected.

    Each of those futures holds it until it is read. So it is collected with the last of them, and
    logs once however many there were.

    Args:
        run_soon: runs a function in another thread. The collector may interrupt a thread anywhere,
            also within a log handler that holds a lock, so nothing is logged right here.
    """

    __slots__ = ("_error", "_run_soon", "_topic", "_unread")

    def __init__(
        self, topic: str, error: str, count: int, run_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._topic = topic
        self._error = error
        self._unread = [None] * count
        self._run_soon = run_soon

    def one_was_read(self) -> None:
        """One of the futures was read."""
        self._unread.pop()  # a function in C: two threads never count one for two

    def __del__(self) -> None:
        if self._unread and not sys.is_finalizing():
            self._run_soon(partial(_log, self._topic, self._error, len(self._unread)))


def _log(topic: str, error: str, count: int) -> None:
    with suppress(Exception):  # a filter of the host may raise; that is not the dispatcher's matter
        log.warning(events.PRODUCER_SEND_FAILED, topic=topic, error=error, count=count)
