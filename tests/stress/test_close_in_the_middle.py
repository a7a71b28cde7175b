"""Brokers that are closed, dropped and forgotten while everything is under way."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from stress.harness import WATCHDOG, Team, broker_log, settled

from dmq_actors import BrokerClosedError, BrokerTimeoutError, DMQError, Message, MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stress.harness import Rounds

    from dmq_actors import Promise

pytestmark = pytest.mark.stress


def open_broker(rng: random.Random, threads: int) -> MessageQueue:
    """A broker with two topics, two groups each, and a member that reads each."""
    mq = MessageQueue(call_timeout=WATCHDOG, actor_threads=threads)
    for topic in ("a", "b"):
        mq.create_topic(topic, rng.randint(1, 3))
        for group in (f"{topic}1", f"{topic}2"):
            mq.create_consumer_group(group, topic, rng.choice(["at_least_once", "exactly_once"]))
            mq.add_consumer(group, "c")
    return mq


class Leftovers:
    """What brokers leave behind: actors and threads that were not there before."""

    def __init__(self) -> None:
        self._actors = pykka.ActorRegistry.get_all()
        self._threads = set(threading.enumerate())

    def threads(self) -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread.name.startswith("dmq-") and thread not in self._threads
        ]

    def check(self) -> None:
        """There are none."""
        left = [ref for ref in pykka.ActorRegistry.get_all() if ref not in self._actors]
        assert not left, f"{len(left)} actors are left: {left[:3]}"
        assert self.threads() == []


@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("threads", [1, 4])
def test_close_in_the_middle_of_everything_answers_everybody(threads, rounds: Rounds):
    """Publishes that nobody awaits, long polls, questions: a result, or BrokerClosedError."""
    told: Counter[str] = Counter()

    def one_round(rng: random.Random) -> None:
        leftovers = Leftovers()
        with broker_log():
            middle = Middle(open_broker(rng, threads), rng)
            middle.run()
        leftovers.check()
        told.update(middle.told)

    rounds.play(one_round, cases=2)
    assert told["BrokerClosedError"]
    assert told["answered"]


class Middle:
    """One round: everything is under way, then the broker is closed, twice at the same time."""

    def __init__(self, mq: MessageQueue, rng: random.Random) -> None:
        self.mq, self.rng = mq, rng
        self.told: Counter[str] = Counter()
        self.promises: list[Promise[Any]] = []
        self.warm = threading.Semaphore(0)
        # Taken before the end: these do not ask whether the broker is open.
        self.coordinator = mq.coordinator
        self.groups = [mq.group_actor(group) for group in ("a1", "a2", "b1", "b2")]

    def run(self) -> None:
        with Team() as team:
            team.start(self.flood, team)
            team.start(self.flood, team)
            team.start(self.ask, team, random.Random(self.rng.random()))
            team.start(self.publish, team)
            for group in ("a1", "b1"):
                team.start(self.poll, group)
            for _ in range(self.rng.randint(1, 20)):
                while team.still() and not self.warm.acquire(timeout=0.1):
                    pass
            team.start(self.close)
            self.close()
        for error in settled(self.promises):
            self.tell(error)
        wrong = {name for name in self.told if name not in {"answered", "BrokerClosedError"}}
        assert not wrong, dict(self.told)

    def tell(self, error: BaseException | None) -> None:
        self.told["answered" if error is None else type(error).__name__] += 1

    def close(self) -> None:
        report = self.mq.close()
        assert report.clean, report
        assert set(report.in_flight) <= {"a1", "a2", "b1", "b2"}

    def until_after_the_end(self, team: Team) -> Iterator[threading.Semaphore]:
        """Go on until the broker begins to close, and a little longer."""
        after, room = 0, threading.Semaphore(30)
        while after < 15 and team.still():
            after += "closed" in repr(self.mq)
            yield room
            self.warm.release()

    def flood(self, team: Team) -> None:
        """Publish without waiting, thirty messages ahead at most."""
        for room in self.until_after_the_end(team):
            if room.acquire(timeout=0.1):
                promise = self.coordinator.publish("a", Message("flood", key="k"))
                promise.add_done_callback(lambda _, room=room: room.release())
                self.promises.append(promise)

    def ask(self, team: Team, rng: random.Random) -> None:
        for _ in self.until_after_the_end(team):
            group = rng.choice(self.groups)
            asked = [
                self.coordinator.list_topics(),
                self.coordinator.get_topic_info("a"),
                group.info(),
                group.lag(),
                group.seek(0, -1),
            ]
            self.promises.append(group.poll("c", 1, rng.choice([0.0, 30.0, None])))
            self.promises += asked
            settled(asked)

    def publish(self, team: Team) -> None:
        try:
            while team.still():
                self.mq.publish("a", Message("waited for"), timeout=WATCHDOG)
                self.mq.publish_many("b", [Message(number) for number in range(5)])
        except DMQError as error:
            self.tell(error)

    def poll(self, group: str) -> None:
        try:
            while True:
                for message in self.mq.poll(group, "c", 10, 30.0):
                    self.mq.acknowledge(group, message)
        except DMQError as error:
            self.tell(error)


@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("threads", [1, 4])
def test_close_while_topics_and_groups_come_and_go_leaves_none_of_them(threads, rounds: Rounds):
    def one_round(rng: random.Random) -> None:
        leftovers, mq = Leftovers(), open_broker(rng, threads)
        coordinator, partition = mq.coordinator, mq.partition_actor("b", 0)
        promises: list[Promise[Any]] = []

        def create(name: str) -> None:
            for number in range(5):
                promises.append(coordinator.create_topic(f"{name}-{number}", 3))
                promises.append(coordinator.create_consumer_group(f"{name}-{number}", "a"))

        def delete() -> None:
            promises.extend(partition.bounds() for _ in range(250))
            promises.append(coordinator.delete_consumer_group("a1"))
            promises.append(coordinator.delete_topic("b"))
            promises.extend(partition.bounds() for _ in range(20))

        with Team() as team:
            team.start(create, "x")
            team.start(create, "y")
            team.start(delete)
            assert mq.close().clean
        timeouts = [e for e in settled(promises) if isinstance(e, BrokerTimeoutError)]
        untyped = [e for e in settled(promises) if e and not isinstance(e, DMQError)]
        assert not timeouts + untyped
        leftovers.check()

    rounds.play(one_round, cases=2)


@pytest.mark.usefixtures("hectic")
def test_a_broker_that_is_dropped_in_the_middle_ends_by_itself(rounds: Rounds):
    """The collector may come to it in any thread, also in one that is just sending to it."""
    thresholds = gc.get_threshold()

    def one_round(rng: random.Random) -> None:
        gc.set_threshold(100_000)
        gc.freeze()  # so that the collector has little to walk
        leftovers, mq = Leftovers(), open_broker(rng, rng.choice([1, 4]))
        mq.itself = mq  # only the collector can find out that nobody has it
        coordinator, group = mq.coordinator, mq.group_actor("a1")
        start = threading.Event()
        promises: list[Promise[Any]] = []

        def flood() -> None:
            start.wait(WATCHDOG)
            for _ in range(10):
                promises.append(coordinator.list_topics())
                promises.append(group.poll("c", 1, rng.choice([0.001, None])))

        with Team() as team:
            team.start(flood)
            team.start(flood)
            del mq
            gc.set_threshold(rng.randint(1, 7), 1, 1)
            start.set()
        gc.collect()
        wrong = [e for e in settled(promises) if e and not isinstance(e, BrokerClosedError)]
        assert not wrong, wrong
        with Team() as team:
            for thread in leftovers.threads():
                team.start(thread.join, WATCHDOG)
        leftovers.check()

    try:
        rounds.play(one_round)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def test_close_after_close_from_a_callback_still_waits_for_the_end(rounds: Rounds):
    """On an actor's thread close cannot wait; whoever calls it later can, and does."""

    def one_round(rng: random.Random) -> None:
        leftovers, mq = Leftovers(), open_broker(rng, rng.choice([1, 4]))
        closed = threading.Event()

        def close(_done: object) -> None:
            mq.close()
            closed.set()

        mq.group_actor("a1").poll("c", 1, 5.0)  # so that there is a clock with a thread
        mq.coordinator.list_topics().add_done_callback(close)
        assert closed.wait(WATCHDOG)
        assert mq.close(WATCHDOG).clean
        leftovers.check()

    rounds.play(one_round)
