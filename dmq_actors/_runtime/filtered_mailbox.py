"""`FilteredMailbox`: the inbox of an actor in a test, which may lose, hold or change messages.

A filter sees each message in the thread of the actor, just before it would be handled.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from pykka.messages import ProxyCall

from dmq_actors._runtime.mailbox import Mailbox
from dmq_actors._runtime.ref import Call, Resume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.mailbox import Envelope

    Filter = Callable[["FilteredMailbox", Envelope], Envelope | None]


class FaultSource(Protocol):
    """What decides about the messages of a broker; `dmq_actors.testing.Faults`."""

    def new_filter(self, clock: Clock) -> Filter:
        """A filter for a broker with this clock."""
        ...


class _Passed:
    """A message that has been through the filters."""

    __slots__ = ("message",)

    def __init__(self, message: Any) -> None:
        self.message = message


class FilteredMailbox(Mailbox):
    """A mailbox whose messages pass filters; the rest is as in `Mailbox`."""

    __slots__ = ("_filters", "_held", "owner")

    def __init__(self, owner: str, filters: Sequence[Filter]) -> None:
        super().__init__()
        self.owner = owner
        self._filters = filters
        self._held: list[Envelope] = []

    def __iter__(self) -> Iterator[Envelope]:
        """The messages that pass all filters, as they leave them; as `Mailbox` has it."""
        for envelope in super().__iter__():
            message, reply = envelope
            if isinstance(message, _Passed):
                yield message.message, reply
                continue
            filtered = self._pass(envelope)
            if filtered is not None:
                yield filtered

    def _pass(self, envelope: Envelope) -> Envelope | None:
        for each in self._filters:
            passed = each(self, envelope)
            if passed is None:
                return None
            envelope = passed
        return envelope

    def hold(self, envelope: Envelope) -> None:
        """Keep a message back; at the end of the actor whoever waits for it hears of that."""
        self._held.append(envelope)

    def release(self, envelope: Envelope) -> None:
        """Let a message that was held be handled now, without passing the filters again."""
        if self.put_passed(envelope):  # or the actor has ended, and `close` answers it
            with suppress(ValueError):
                self._held.remove(envelope)

    def put_passed(self, envelope: Envelope) -> bool:
        """Add a message that is not filtered; False if the mailbox is closed."""
        message, reply = envelope
        return not self.put((_Passed(message), reply))

    def close(self) -> list[Envelope]:
        """As `Mailbox.close`; what is held was not handled either."""
        left = super().close()
        held, self._held = self._held, []
        return left + held


def name_of(message: Any) -> str | None:
    """The name of the method that a message calls; None for those that end or inspect an actor.

    The messages of an actor to itself have names that begin with an underscore.
    """
    if isinstance(message, Call):
        return cast("str", getattr(message.method, "__name__", None))
    if isinstance(message, Resume):
        return cast("str", getattr(message.callback, "__name__", None))
    if isinstance(message, ProxyCall):
        return message.attr_path[-1]
    return None
