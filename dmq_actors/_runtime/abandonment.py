"""`Abandonment`: what a promise does when nobody reads its answer."""

from __future__ import annotations

from functools import partial


class Abandonment(partial[object]):
    """What to do about an answer that nobody reads: said outright, or collected unread.

    Made for polls, whose messages are given back. It may run where the garbage collector, or a
    Ctrl-C, interrupts a thread. So its action must take no lock, may run twice, and should be a
    function in C; then, as this is one too, there is no moment at which it could be half done.
    """

    __del__ = partial.__call__

    def disarm(self) -> None:
        """The answer was read."""
        self.__setstate__((int, (), {}, None))  # type: ignore[attr-defined]  # missing in typeshed
