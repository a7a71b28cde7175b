"""What every stress test needs: rounds with a seed, threads with a watchdog, a record of all.

A round is small and random. What it does is drawn from its seed, and what the threads make of it
is checked afterwards against rules that hold for every schedule.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
import threading
import time
import traceback
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dmq_actors import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dmq_actors import DeliveredMessage

ROUNDS = 200
"""Rounds that each scenario plays, over all its cases together."""

WATCHDOG = 10.0
"""Seconds after which something is called hung."""


class Rounds:
    """Plays the rounds of one case, counts them, and tells the seed of one that fails."""

    def __init__(self, case: str, seed: str) -> None:
        self.case = case
        self.seed = seed
        self.played = 0

    def play(self, one_round: Callable[[random.Random], None], cases: int = 1) -> None:
        """Play this case's share of `ROUNDS`, where a scenario has so many cases."""
        wanted = -(-ROUNDS // cases)
        for number in range(wanted):
            try:
                one_round(random.Random(f"{self.seed}/{self.case}/{number}"))
            except BaseException as error:
                again = f"round {number} of {self.case}; again with DMQ_STRESS_SEED={self.seed}"
                error.add_note(again)
                raise
            self.played += 1
        assert self.played == wanted


class Team:
    """Threads of one round: ``with Team() as team: team.start(f, x)`` waits for all at the end.

    The watchdog is one for all of them, and tells where each hung thread stands. `broken` is set as
    soon as one fails, so that the others need not wait for what will never come.
    """

    def __init__(self, timeout: float = WATCHDOG) -> None:
        self.deadline = time.monotonic() + timeout
        self.broken = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[str] = []

    def start(self, work: Callable[..., Any], *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)
            except BaseException:
                self._errors.append(traceback.format_exc())
                self.broken.set()

        thread = threading.Thread(target=run, name=f"team-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def still(self) -> bool:
        """Whether a loop may go on: nobody has failed, and there is time."""
        assert time.monotonic() < self.deadline, "the round did not end in time"
        return not self.broken.is_set()

    def wait_for(self, event: threading.Event) -> None:
        """Wait until an event happens, or somebody fails."""
        while self.still() and not event.wait(0.1):
            pass

    def join(self) -> None:
        for thread in self._threads:
            thread.join(max(self.deadline - time.monotonic(), 0.1))
        hung = [thread for thread in self._threads if thread.is_alive()]
        told = "\n".join(self._errors)
        assert not hung, f"hung:\n{where_they_stand()}\nerrors so far:\n{told}"
        assert not self._errors, told

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if error is None:
            self.join()
        else:
            self.broken.set()


def where_they_stand() -> str:
    """The stacks of all threads but this one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident)}:\n" + "".join(traceback.format_stack(frame)[-6:])
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    )


def settled(promises: list[Any], timeout: float = WATCHDOG) -> list[BaseException | None]:
    """Wait for all promises together; the error of each, or None. Fails if one stays open."""
    deadline = time.monotonic() + timeout
    outcomes: list[BaseException | None] = []
    for promise in promises:
        arrived = threading.Event()
        promise.add_done_callback(lambda _, arrived=arrived: arrived.set())
        if not arrived.wait(max(deadline - time.monotonic(), 0.0)):
            break
        outcomes.append(None)
    open_ones = [promise for promise in promises if not promise.done()]
    assert not open_ones, f"{len(open_ones)} of {len(promises)} promises were never answered"
    for at, promise in enumerate(promises):
        try:
            promise.get(timeout=0)
        except Exception as error:
            outcomes[at] = error
    return outcomes


class BrokerLog(logging.Handler):
    """What the broker logged: who the members were in each generation, and what went wrong."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.failures: list[str] = []
        self._members: defaultdict[str, list[tuple[int, tuple[str, ...]]]] = defaultdict(list)

    def emit(self, record: logging.LogRecord) -> None:
        data = getattr(record, "dmq", {"event": ""})
        if data["event"] == events.GROUP_REBALANCED:
            self._members[data["group"]].append((data["generation"], tuple(data["members"])))
        elif record.levelno >= logging.ERROR:
            self.failures.append(logging.Formatter().format(record))

    def generations(self, group: str) -> list[tuple[str, ...]]:
        """The members by generation; one join or leave apart from each other."""
        told = self._members[group]
        assert [generation for generation, _ in told] == list(range(1, len(told) + 1))
        members = [(), *(names for _, names in told)]
        for before, after in itertools.pairwise(members):
            assert len(set(before) ^ set(after)) == 1, f"from {before} to {after} at once"
        return members


@contextmanager
def broker_log() -> Iterator[BrokerLog]:
    """Listen to the broker's log, and keep it from everybody else meanwhile; it has no errors."""
    logger, handler = logging.getLogger("dmq_actors"), BrokerLog()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    assert not handler.failures, handler.failures


class Diary:
    """What one member, polled by one thread, got and did; in order."""

    def __init__(self, consumer_id: str) -> None:
        self.consumer_id = consumer_id
        self.entries: list[tuple[str, DeliveredMessage]] = []

    def got(self, messages: list[DeliveredMessage]) -> None:
        self.entries += [("got", message) for message in messages]

    def told(self, result: str, message: DeliveredMessage) -> None:
        """What the broker answered to an ack or a nack."""
        self.entries.append((str(result), message))


class History:
    """All diaries of a group (assignor ``modular``) in the order in which its state went on.

    A partition has one owner in each generation, and one thread polls for that owner. So for each
    partition the entries have one true order, whatever the threads did: by stay (the generations
    that an owner kept the partition), and within a stay as they stand in the owner's diary.
    """

    def __init__(
        self, diaries: list[Diary], generations: list[tuple[str, ...]], partitions: int
    ) -> None:
        self._generations = generations
        self._stays = {partition: self._count_stays(partition) for partition in range(partitions)}
        placed = [
            (message.partition, self._stay(message), place, what, message, diary.consumer_id)
            for diary in diaries
            for place, (what, message) in enumerate(diary.entries)
        ]
        placed.sort(key=lambda entry: entry[:3])
        self.by_partition: dict[int, list[tuple[int, str, DeliveredMessage]]] = {
            partition: [] for partition in range(partitions)
        }
        for partition, stay, _, what, message, consumer_id in placed:
            owner = self.owner(message.generation, partition)
            assert owner == consumer_id, f"{consumer_id} has what is {owner}'s: {message}"
            self.by_partition[partition].append((stay, what, message))

    def owner(self, generation: int, partition: int) -> str | None:
        members = self._generations[generation]
        return members[partition % len(members)] if members else None

    def _count_stays(self, partition: int) -> list[int]:
        stays = [0]
        for generation in range(1, len(self._generations)):
            moved = self.owner(generation, partition) != self.owner(generation - 1, partition)
            stays.append(stays[-1] + moved)
        return stays

    def _stay(self, message: DeliveredMessage) -> int:
        return self._stays[message.partition][message.generation]

    def deliveries(self) -> Iterator[tuple[int, int, DeliveredMessage]]:
        """Partition, stay and message of all deliveries, each partition's in their true order."""
        for partition, entries in self.by_partition.items():
            for stay, what, message in entries:
                if what == "got":
                    yield partition, stay, message

    def check_attempts(self) -> None:
        """Attempts count 1, 2, 3 …: none was given to two readers, none to nobody."""
        attempts = defaultdict(list)
        for partition, _, message in self.deliveries():
            attempts[partition, message.offset].append(message.delivery_attempt)
        wrong = {
            place: found
            for place, found in attempts.items()
            if found != list(range(1, len(found) + 1))
        }
        assert not wrong, f"attempts that are not 1, 2, 3 …: {wrong}"

    def check_nothing_twice_in_a_stay(self) -> None:
        """While an owner lives and keeps its partition it gets nothing again."""
        seen = set()
        for partition, stay, message in self.deliveries():
            place = partition, stay, message.offset
            assert place not in seen, f"delivered twice to a live owner: {message}"
            seen.add(place)

    def check_nothing_after_completion(self) -> None:
        """Each message is completed once at most, and never delivered after that."""
        for entries in self.by_partition.values():
            done = set()
            for _, what, message in entries:
                if what in {"got", "completed", "dead_lettered"}:
                    assert message.offset not in done, f"{what} after completion: {message}"
                if what in {"completed", "dead_lettered"}:
                    done.add(message.offset)

    def check_order_of_first_deliveries(self) -> None:
        """First deliveries of each key come in the order of their offsets."""
        highest: dict[tuple[int, Any], int] = {}
        for partition, _, message in self.deliveries():
            if message.delivery_attempt == 1 and message.key is not None:
                lane = partition, message.key
                assert message.offset > highest.get(lane, -1), f"out of order: {message}"
                highest[lane] = message.offset

    def check_retries_hold_their_key(self) -> None:
        """Behind a message that waits for a retry nothing new of its key is delivered."""
        for entries in self.by_partition.values():
            waiting: set[tuple[Any, int]] = set()
            for _, what, message in entries:
                place = message.key, message.offset
                if what == "retrying":
                    waiting.add(place)
                elif what != "got" or place in waiting:
                    waiting.discard(place)
                elif message.delivery_attempt == 1 and message.key is not None:
                    passed = [
                        offset
                        for key, offset in waiting
                        if key == message.key and offset < message.offset
                    ]
                    assert not passed, f"{message} went past {passed} of its key"
