"""What producers have sent and the coordinator has not taken yet, as the broker sees it.

A thread that goes on elsewhere (publish, another producer) must not overtake what it has sent, so
each thread remembers by topic the sender that it used last.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable

    from dmq_actors._actors.router import Router


class Sending(Protocol):
    """Messages for one topic that are on their way."""

    def publish(self, router: Router) -> None:
        """Send them to their partitions; in the coordinator."""
        ...


class Sender(Protocol):
    """Whoever collects messages for the coordinator to take; a producer's outbox."""

    def take(self, entries: list[Any]) -> Iterable[Sending]:
        """What is in this list, by topic; in the coordinator."""
        ...

    def seal(self) -> None:
        """Hand over what is there, and keep what comes later apart from it."""
        ...


class _LastSenders(threading.local):
    """By topic, the sender that this thread has used last."""

    def __init__(self) -> None:
        self.by_topic: dict[str, weakref.ref[Sender]] = {}


_last = _LastSenders()


def sends_through(topic: str, sender: weakref.ref[Sender]) -> None:
    """This thread sends through this sender: what it has sent elsewhere must go first."""
    if _last.by_topic.get(topic) is not sender:
        hand_over_before(topic)
        _last.by_topic[topic] = sender


def hand_over_before(topic: str) -> None:
    """This thread publishes to a topic: what it has sent there must go first."""
    if _last.by_topic:
        found = _last.by_topic.pop(topic, None)
        sender = found() if found is not None else None
        if sender is not None:
            sender.seal()
