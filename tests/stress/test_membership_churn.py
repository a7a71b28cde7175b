"""Producers and consumers of one group that join, leave and crash, sixteen threads at a time."""

from __future__ import annotations

import itertools
import queue
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from stress.harness import WATCHDOG, Diary, History, Team, broker_log

from dmq_actors import (
    AckResult,
    DMQError,
    InvalidOffsetError,
    Message,
    MessageQueue,
    StaleAssignmentError,
)

if TYPE_CHECKING:
    from stress.harness import BrokerLog, Rounds

    from dmq_actors import DeliveredMessage, GroupInfo, StoredMessage, TopicInfo

pytestmark = pytest.mark.stress

SEMANTICS = ("at_most_once", "at_least_once", "exactly_once")
PRODUCERS, CONSUMERS = 5, 9  # and a supervisor and a spectator: sixteen


@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("delivery", SEMANTICS)
def test_members_that_join_leave_and_crash_lose_nothing_and_double_nothing(
    delivery, threads, rounds: Rounds
):
    numbers = itertools.count()
    with broker_log() as log, MessageQueue(call_timeout=WATCHDOG, actor_threads=threads) as mq:

        def one_round(rng: random.Random) -> None:
            Churn(mq, f"{next(numbers)}", delivery, rng, log).run()

        rounds.play(one_round, cases=2 * len(SEMANTICS))


class Churn:
    """One round."""

    def __init__(
        self, mq: MessageQueue, name: str, delivery: str, rng: random.Random, log: BrokerLog
    ) -> None:
        self.mq, self.delivery, self.log = mq, delivery, log
        self.topic, self.group = f"topic-{name}", f"group-{name}"
        self.partitions = rng.randint(1, 6)
        self.seeds = [rng.random() for _ in range(PRODUCERS + CONSUMERS + 2)]
        self.team = Team()
        self.stored: list[StoredMessage] = []
        self.diaries: list[Diary] = []
        self.changes = itertools.count()  # joins and leaves; next() is atomic
        self.crashed: queue.SimpleQueue[tuple[str, list[DeliveredMessage]]] = queue.SimpleQueue()
        self.all_published, self.all_done = threading.Event(), threading.Event()
        self.publishing = threading.Semaphore(0)

    def run(self) -> None:
        mq = self.mq
        mq.create_topic(self.topic, self.partitions)
        mq.create_consumer_group(self.group, self.topic, self.delivery)
        rngs = iter([random.Random(seed) for seed in self.seeds])
        with self.team as team:
            for number in range(PRODUCERS):
                team.start(self.produce, next(rngs), f"p{number}")
            consumers = [
                team.start(self.consume, next(rngs), f"c{number}") for number in range(CONSUMERS)
            ]
            team.start(self.supervise, next(rngs), consumers)
            team.start(self.watch)
            for _ in range(PRODUCERS):
                while team.still() and not self.publishing.acquire(timeout=0.1):
                    pass
            self.all_published.set()
        self.check()
        mq.delete_topic(self.topic)

    # The threads

    def produce(self, rng: random.Random, name: str) -> None:
        numbers = itertools.count()
        later = []
        for _ in range(4):
            batch = [
                Message(next(numbers), key=rng.choice([f"{name}-a", f"{name}-b", "shared", None]))
                for _ in range(rng.randint(1, 3))
            ]
            how = rng.randrange(3)
            if how == 0:
                self.stored += [self.mq.publish(self.topic, message) for message in batch]
            elif how == 1:
                self.stored += self.mq.publish_many(self.topic, batch)
            else:
                later += [self.mq.coordinator.publish(self.topic, message) for message in batch]
        self.stored += [promise.get(timeout=WATCHDOG) for promise in later]
        self.publishing.release()

    def consume(self, rng: random.Random, name: str) -> None:
        for life in itertools.count():
            if self.all_done.is_set() or not self.team.still():
                return
            self.live(rng, Diary(f"{name}-{life}"))

    def live(self, rng: random.Random, diary: Diary) -> None:
        me, batch = diary.consumer_id, []
        self.diaries.append(diary)
        assert me in self.mq.add_consumer(self.group, me)
        next(self.changes)
        for _ in range(rng.randint(1, 10)):
            if self.all_done.is_set():
                break
            wait = rng.choice([0.0, 0.005, 0.02])
            batch = self.mq.poll(self.group, me, rng.choice([1, 3, 100]), wait)
            diary.got(batch)
            if batch and rng.random() < 0.2:
                self.crashed.put((me, batch))
                return
            self.complete(rng, diary, batch)
        assert me not in self.mq.remove_consumer(self.group, me)
        next(self.changes)

    def complete(self, rng: random.Random, diary: Diary, batch: list[DeliveredMessage]) -> None:
        how = rng.randrange(4)
        if how == 0:
            self.mq.commit(self.group, diary.consumer_id)
            # Committed, or the partition is gone: both end the delivery.
            self.expect_stale(batch)
        elif how == 1 and batch:
            offsets = {message.partition: message.offset + 1 for message in batch}
            with suppress(
                StaleAssignmentError, InvalidOffsetError
            ):  # moved away, or there and back
                self.mq.commit(self.group, diary.consumer_id, offsets)
        else:
            rng.shuffle(batch)
            for message in batch:
                diary.told(self.mq.acknowledge(self.group, message), message)

    def expect_stale(self, batch: list[DeliveredMessage]) -> None:
        results = {self.mq.acknowledge(self.group, message) for message in batch}
        over = AckResult.COMPLETED if self.delivery == "at_most_once" else AckResult.STALE
        assert results <= {over}

    def supervise(self, rng: random.Random, consumers: list[threading.Thread]) -> None:
        while self.team.still():
            try:
                me, batch = self.crashed.get(timeout=0.01)
            except queue.Empty:
                if any(thread.is_alive() for thread in consumers):
                    continue
                if self.crashed.empty():
                    return
                continue
            self.mq.remove_consumer(self.group, me)
            next(self.changes)
            if rng.random() < 0.5:  # it was not dead after all: its acks come too late
                self.expect_stale(batch)

    def watch(self) -> None:
        before: GroupInfo | None = None
        while self.team.still():
            finished = self.all_published.is_set()
            group = self.mq.get_group_info(self.group)
            check_snapshot(group, self.mq.get_topic_info(self.topic), before)
            if finished and group.lag == 0:
                break
            before = group
        self.all_done.set()

    # What must be true of every round

    def check(self) -> None:
        group, topic = self.mq.get_group_info(self.group), self.mq.get_topic_info(self.topic)
        assert group.lag == 0
        assert self.mq.get_consumer_lag(self.group) == dict.fromkeys(range(self.partitions), 0)
        assert group.members == ()
        assert group.generation == next(self.changes)
        assert topic.message_count == len(self.stored)

        places = {(message.partition, message.offset): message for message in self.stored}
        assert len(places) == len(self.stored), "an offset was given twice"
        history = History(self.diaries, self.log.generations(self.group), self.partitions)
        for _, _, message in history.deliveries():
            stored = places[message.partition, message.offset]
            assert (message.value, message.key) == (stored.value, stored.key)
            assert message.message_id == stored.message_id
        delivered = {(partition, m.offset) for partition, _, m in history.deliveries()}
        assert delivered == set(places), "lost"
        history.check_attempts()
        history.check_order_of_first_deliveries()
        history.check_nothing_twice_in_a_stay()
        if self.delivery == "at_most_once":
            assert all(m.delivery_attempt == 1 for _, _, m in history.deliveries())
        else:
            history.check_nothing_after_completion()
        self.check_order_of_publishing()

    def check_order_of_publishing(self) -> None:
        """What one producer sent with one key of its own stands in the log in that order."""
        lanes: dict[str, list[StoredMessage]] = {}
        for message in self.stored:
            if message.key not in {None, "shared"}:
                lanes.setdefault(str(message.key), []).append(message)
        for lane in lanes.values():
            lane.sort(key=lambda message: message.offset)
            assert len({message.partition for message in lane}) == 1
            sent = [message.value for message in lane]
            assert sent == sorted(sent)


def check_snapshot(group: GroupInfo, topic: TopicInfo, before: GroupInfo | None) -> None:
    """The invariants of the design that one look can check; `topic` was looked at later."""
    dealt = sorted(partition for owned in group.assignments.values() for partition in owned)
    assert dealt == (list(range(topic.num_partitions)) if group.members else [])
    assert tuple(group.assignments) == group.members
    owners = {partition: who for who, owned in group.assignments.items() for partition in owned}
    for number, info in enumerate(group.partitions):
        assert info.owner == owners.get(number)
        assert 0 <= info.committed_offset <= info.current_offset
        assert info.current_offset <= topic.partitions[number].next_offset
        assert 0 <= info.in_flight <= info.current_offset - info.committed_offset
        assert info.lag >= 0
    if before is None:
        return
    assert group.generation >= before.generation
    if group.generation == before.generation:
        assert group.members == before.members
    for now, then in zip(group.partitions, before.partitions, strict=True):
        assert now.committed_offset >= then.committed_offset


def test_one_membership_change_is_one_generation_while_others_commit(rounds: Rounds):
    with MessageQueue(call_timeout=WATCHDOG, actor_threads=2) as mq:

        def one_round(rng: random.Random) -> None:
            mq.create_topic("t", 4)
            mq.create_consumer_group("g", "t", rng.choice(SEMANTICS))
            mq.publish_many("t", [Message(number) for number in range(40)])
            changes = itertools.count()
            seeds = [rng.random() for _ in range(4)]

            def member(number: int) -> None:
                own = random.Random(seeds[number])
                for _ in range(3):
                    mq.add_consumer("g", f"c{number}")
                    next(changes)
                    for _ in range(own.randint(0, 3)):
                        got = mq.poll("g", f"c{number}", 5, 0.0)
                        ends = {message.partition: message.offset + 1 for message in got}
                        with suppress(StaleAssignmentError, InvalidOffsetError):
                            mq.commit("g", f"c{number}", own.choice([None, ends]))
                    mq.remove_consumer("g", f"c{number}")
                    next(changes)

            def refused() -> None:
                for call in (
                    lambda: mq.remove_consumer("g", "nobody"),
                    lambda: mq.commit("g", "nobody"),
                    lambda: mq.seek("g", 9, 0),
                ):
                    with pytest.raises(DMQError):
                        call()

            with Team() as team:
                for number in range(len(seeds)):
                    team.start(member, number)
                team.start(refused)
            info = mq.get_group_info("g")
            assert info.generation == next(changes) == 24
            assert info.members == ()
            mq.delete_topic("t")

        rounds.play(one_round)
