"""`Outbox`: what a producer has sent and the coordinator has not taken yet, and what is under way.

A sender only appends to a list. When the list shall go, a *note* is put into the mailbox of the
coordinator, and the coordinator takes all that is in that list by then. A note too many finds
nothing and does no harm. So a Ctrl-C at any moment of a send neither loses nor doubles a message;
what is sent first is taken first. When a thread goes on elsewhere (publish, another producer), the
list is sealed as well: what is sent here after that must not be taken by a note from before.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING

from dmq_actors._actors.coordinator import CoordinatorActor
from dmq_actors._actors.sent import sends_through
from dmq_actors._clients.parcel import Entry, pack
from dmq_actors._clients.send_future import SendFuture
from dmq_actors._core.batch import prepare_one
from dmq_actors._runtime.forks import fork_count, forked_error
from dmq_actors._runtime.gate import ThreadGate
from dmq_actors._runtime.here import here
from dmq_actors._runtime.ref import closed_error
from dmq_actors.errors import BrokerClosedError, DMQError, QueueFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._actors.broker import Broker
    from dmq_actors._actors.sent import Sender
    from dmq_actors._clients.parcel import Parcel
    from dmq_actors._runtime.promise import Promise
    from dmq_actors.messages import Message


class Outbox:
    """The messages of one producer that are not settled. Thread-safe.

    Args:
        broker: whose coordinator takes them.
        linger: seconds on the broker's clock that a message waits for others at most.
        batch_size: messages that are not kept waiting for more.
        max_in_flight: messages that may be unsettled.
        max_block: seconds that a sender waits for room.
    """

    ending_rank = 1

    def __init__(
        self, broker: Broker, linger: float, batch_size: int, max_in_flight: int, max_block: float
    ) -> None:
        # Reentrant: the collector may run a finalizer that sends while this thread holds it.
        self.lock = threading.RLock()
        self._broker = broker
        self._linger = linger
        self._batch_size = batch_size
        self._max_in_flight = max_in_flight
        self._max_block = max_block
        self._forks = fork_count()
        self._weak: weakref.ref[Sender] = weakref.ref(self)
        self._refusal: Callable[[], DMQError] | None = None
        self._open: list[Entry] = []
        self._noted: list[Entry] = []
        self._sealed: list[list[Entry]] = []
        self._since = 0.0
        self._timer_is_set = False
        self._taken = 0
        self.under_way: set[Parcel] = set()
        self._waiting_for_room: list[ThreadGate] = []
        broker.clients.add(self, closed_error)

    def is_forked(self) -> bool:
        """Whether this is the child of a fork, where locks may be held by threads that are gone."""
        return self._forks != fork_count()

    @property
    def in_flight(self) -> int:
        """Messages that were sent and are not settled."""
        return self._taken + len(self._open)

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._refusal is not None

    # Sending

    def send(self, topic: str, message: Message, partition: int | None) -> SendFuture:
        """Prepare a message here and put it into the outbox; raises what is wrong with it."""
        if self._forks != fork_count():
            raise forked_error()
        handle = self._broker.directory.topic(topic)
        ready = prepare_one(handle.config, message, partition)
        future = SendFuture(self)
        if ready.copied:
            future._copied = True  # noqa: SLF001  # its other half
        sends_through(topic, self._weak)
        entry = Entry(future, handle, ready)
        try:
            if not self._put(entry):
                self._put_when_there_is_room(entry)
            if len(self._open) >= self._batch_size or not self._linger:
                self.hand_over()
        except KeyboardInterrupt:
            self.hand_over()  # if the message is in, nobody else may ever see to it
            raise
        return future

    def _put(self, entry: Entry) -> bool:
        with self.lock:
            if self._refusal is not None:
                raise self._refusal()
            if self._taken + len(self._open) >= self._max_in_flight:
                return False
            if not self._open and self._linger:
                self._since = self._broker.clock.monotonic()
                self._set_timer()
            self._open.append(entry)  # the one step that matters
            return True

    def _put_when_there_is_room(self, entry: Entry) -> None:
        deadline = time.monotonic() + self._max_block
        while True:
            gate = ThreadGate()
            with self.lock:
                self._waiting_for_room.append(gate)
            self.hand_over()
            if self._put(entry):  # again, now that nobody can overlook the gate
                return
            self._wait_for_room(gate, deadline)

    def _wait_for_room(self, gate: ThreadGate, deadline: float) -> None:
        full = f"{self._max_in_flight} messages of this producer are in flight"
        if asyncio._get_running_loop() is not None:  # noqa: SLF001  # documented
            raise QueueFullError(
                f"{full}, and an event loop must not wait; await earlier sends, then send this one"
            )
        if here.current is not None or here.serves:
            raise QueueFullError(f"{full}, and a done-callback must not wait")
        if not gate.wait(deadline - time.monotonic()):
            raise QueueFullError(
                f"{full}, and there was no room for {self._max_block} s; send more slowly, "
                "or raise max_in_flight or max_block"
            )

    # Handing over

    def hand_over(self) -> None:
        """Let the coordinator take what is in the list now. Needs no lock, and never waits."""
        self._note(self._open)

    def _note(self, waiting: list[Entry]) -> None:
        # The list is replaced when it is taken, so a note that was put for it says it all. It is
        # marked only afterwards: a second note is harmless, a missing one would not be.
        if waiting and self._noted is not waiting and not self.is_forked():
            note = self._broker.coordinator.call(CoordinatorActor.collect, self, waiting)
            note.when_done(partial(self._collected, waiting))
            self._noted = waiting

    def seal(self) -> None:
        """As `hand_over`; and what is sent from now on goes into another list."""
        waiting = self._open
        if not waiting:  # others may put something in from now on, and they will see to it
            return
        self._note(waiting)
        with self.lock:
            if waiting is self._open:
                self._sealed.append(waiting)
                self._taken += len(waiting)
                self._open = []

    def hand_over_unattended(self) -> None:
        """As `hand_over`, where the garbage collector may have interrupted a thread of ours."""
        if not self.is_forked():
            self._broker.run_soon(self.hand_over)

    def take(self, entries: list[Entry]) -> list[Parcel]:
        """For the coordinator: what is in the list of a note, by topic."""
        with self.lock:
            if entries is self._open:
                self._open = []
                self._taken += len(entries)
            else:  # it was sealed, or it was taken before and is empty
                self._sealed = [other for other in self._sealed if other is not entries]
            parcels = pack(self, entries)
            self.under_way.update(parcels)
            entries.clear()  # `_noted` may hold the list for long
        return parcels

    def _collected(self, entries: list[Entry], note: Promise[None]) -> None:
        try:
            note.peek()
        except DMQError as error:
            parcels = self.take(entries)
            if not isinstance(error, BrokerClosedError):  # the partitions answer for what they have
                parcels += self.under_way.copy()
            for parcel in parcels:
                parcel.fail(error)

    def _set_timer(self) -> None:
        if not self._timer_is_set:
            self._broker.clock.call_at(self._since + self._linger, self._linger_is_over)
            self._timer_is_set = True

    def _linger_is_over(self) -> None:
        if self.is_forked():
            return
        with self.lock:
            self._timer_is_set = False
            if not self._open:
                return
            early = self._broker.clock.monotonic() < self._since + self._linger
            if early:  # the list that the timer was set for has gone already
                self._set_timer()
        if not early:
            self.hand_over()

    # Settling

    def make_room(self, count: int) -> None:
        """So many messages are settled."""
        with self.lock:
            self._taken -= count
            # Not for every message: threads that wake up to send one each get in each other's way.
            if self.in_flight > self._max_in_flight // 2 and self._refusal is None:
                return
            gates, self._waiting_for_room = self._waiting_for_room, []
        for gate in gates:
            gate.open()

    def run_soon_or_now(self, work: Callable[[], None]) -> None:
        """Run this in the dispatcher's thread, or here when that has come to its end."""
        if self._broker.is_closed:
            work()
        else:
            self._broker.run_soon(work)

    def unsettled(self) -> list[SendFuture]:
        """The futures of all that was sent before now and is not settled."""
        with self.lock:
            futures = [future for parcel in self.under_way for future in parcel.futures]
            for entries in (*self._sealed, self._open):
                futures += [entry.future for entry in entries]
        return [future for future in futures if not future.done()]

    def wait_until_settled(self, deadline: float) -> int:
        """Wait until this monotonic time for all that was sent; how many are not settled."""
        self.hand_over()
        futures = self.unsettled()
        for future in futures:
            if not future.settled_within(max(deadline - time.monotonic(), 0.0)):
                break
        return sum(not future.done() for future in futures)

    # Ending

    def refuse(self, why: Callable[[], DMQError]) -> None:
        """Take nothing more, and hand over what there is; the first reason stays."""
        with self.lock:
            if self._refusal is None:
                self._refusal = why
        self.make_room(0)  # whoever waits for some hears of it
        self.hand_over()

    def forget_me(self) -> None:
        """The broker need not end this one: everything is settled."""
        self._broker.clients.discard(self)

    def begin_end(self) -> None:
        """See `Client.begin_end`."""
        self.refuse(closed_error)

    def finish_end(self, deadline: float) -> list[str]:
        """See `Client.finish_end`."""
        left = self.wait_until_settled(deadline)
        return [f"a producer with {left} messages in flight"] if left else []
