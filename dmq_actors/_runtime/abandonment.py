"""`Abandonment`: what a promise does when nobody reads its answer."""

from __future__ import annotations

from functools import partial


class Abandonment(partial[object]):
    """What to do about an answer that nobody reads: said outright, or collected unread.

    Made for polls, whose messages are given back. It may run where the garbage collector, or a
    Ctrl-C, interrupts a thread. So its action must take no lock, and may run twice: to put a
    message into a mailbox is such a one.
    """

    __del__ = partial.__call__

    def disarm(self) -> None:
        """The answer was read."""
        self.__setstate__((int, (), {}, None))  # type: ignore[attr-defined]  # missing in typeshed
