"""`Parcel`: messages of one outbox for one topic, on their way, and what becomes of each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from dmq_actors._actors.partition import PartitionActor
from dmq_actors._clients.send_future import FINISHED, Origin
from dmq_actors._clients.unread import UnreadFailures
from dmq_actors._core.batch import merge
from dmq_actors.errors import DMQError
from dmq_actors.messages import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dmq_actors._actors.directory import TopicHandle
    from dmq_actors._actors.router import Router
    from dmq_actors._clients.send_future import SendFuture
    from dmq_actors._core.batch import Ready
    from dmq_actors._runtime.promise import Promise


class Entry(msgspec.Struct, gc=False):
    """One message that was sent, as it was made ready in the sender's thread."""

    future: SendFuture
    topic: TopicHandle
    ready: Ready


class Settler(Origin, Protocol):
    """The outbox of a parcel, as the parcel needs it."""

    under_way: set[Parcel]

    def make_room(self, count: int) -> None:
        """So many messages are settled."""
        ...

    def run_soon_or_now(self, work: Callable[[], None]) -> None:
        """Run this outside of the finalizer that asks for it, if possible."""
        ...


class Parcel:
    """Each of its messages is settled once; the lock of the outbox guards which ones are."""

    __slots__ = ("_outbox", "_unclaimed", "_unsettled", "batch", "futures", "topic")

    def __init__(self, outbox: Settler, topic: TopicHandle, entries: Sequence[Entry]) -> None:
        self._outbox = outbox
        self.topic = topic
        self.batch = merge(topic.config, [entry.ready for entry in entries])
        self.futures = [entry.future for entry in entries]
        self._unclaimed = set(range(len(entries)))
        self._unsettled = len(entries)

    def publish(self, router: Router) -> None:
        """Send the messages to their partitions; in the coordinator's thread."""
        try:
            parts = self.batch.split(router.route(self.topic, self.batch))
        except DMQError as error:
            self.fail(error)
            return
        for partition, (places, part) in parts.items():
            stored = self.topic.partitions[partition].call(PartitionActor.append_each, part)
            stored.when_done(partial(self._answered, places))

    def fail(self, error: DMQError) -> None:
        """All messages that are not settled have failed."""
        places = range(len(self.futures))
        self._settle(places, [error] * len(places))

    def _answered(self, places: list[int], answer: Promise[list[StoredMessage | DMQError]]) -> None:
        outcomes: Sequence[StoredMessage | BaseException]
        try:
            outcomes = answer.peek()
        except Exception as error:  # noqa: BLE001  # handed on to the senders
            outcomes = [error] * len(places)
        self._settle(places, outcomes)

    def _settle(
        self, places: Sequence[int], outcomes: Sequence[StoredMessage | BaseException]
    ) -> None:
        watched: list[tuple[SendFuture, StoredMessage]] = []
        failed: list[tuple[SendFuture, BaseException]] = []
        count = 0
        with self._outbox.lock:
            for place, outcome in zip(places, outcomes, strict=True):
                if place not in self._unclaimed:
                    continue
                self._unclaimed.discard(place)
                count += 1
                future = self.futures[place]
                if not isinstance(outcome, StoredMessage):
                    failed.append((future, outcome))
                elif future.is_watched:
                    watched.append((future, outcome))
                else:
                    future._result = outcome  # noqa: SLF001  # as set_result, with nobody to tell
                    future._state = FINISHED  # noqa: SLF001
        self._outbox.make_room(count)
        # Not under the lock: whoever is told may take other locks.
        for future, stored in watched:
            future.set_result(stored)
        if failed:
            self._fail(failed)
        with self._outbox.lock:
            self._unsettled -= count
            if not self._unsettled:
                self._outbox.under_way.discard(self)

    def _fail(self, failed: list[tuple[SendFuture, BaseException]]) -> None:
        names = [type(error).__name__ for _, error in failed]
        unread = {
            name: UnreadFailures(
                self.topic.name, name, names.count(name), self._outbox.run_soon_or_now
            )
            for name in set(names)
        }
        for name, (future, error) in zip(names, failed, strict=True):
            future._unread = unread[name]  # noqa: SLF001
            # One for each: raising it in many threads would pile up their tracebacks.
            own = type(error)(*error.args) if isinstance(error, DMQError) else error
            future.set_exception(own)


def pack(outbox: Settler, entries: Sequence[Entry]) -> list[Parcel]:
    """One parcel for each topic, in the order in which they were sent to first."""
    if len({entry.topic for entry in entries}) == 1:
        return [Parcel(outbox, entries[0].topic, entries)]
    by_topic: dict[TopicHandle, list[Entry]] = {}
    for entry in entries:
        by_topic.setdefault(entry.topic, []).append(entry)
    return [Parcel(outbox, topic, found) for topic, found in by_topic.items()]
