"""A host that stops all pykka actors of the process, or single ones of ours, during traffic."""

from __future__ import annotations

import itertools
import random
import threading
from typing import TYPE_CHECKING

import pykka
import pytest
from stress.harness import WATCHDOG, Diary, History, Team, broker_log

from dmq_actors import (
    AckResult,
    ActorCrashedError,
    DeadLetterHeader,
    Message,
    MessageQueue,
)

if TYPE_CHECKING:
    from stress.harness import BrokerLog, Rounds

    from dmq_actors import StoredMessage

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures("hectic")]

SEMANTICS = ("at_most_once", "at_least_once", "exactly_once")


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("delivery", SEMANTICS)
def test_actors_that_are_stopped_from_outside_lose_nothing_and_double_nothing(
    delivery, threads, rounds: Rounds
):
    numbers = itertools.count()
    with broker_log() as log, MessageQueue(call_timeout=WATCHDOG, actor_threads=threads) as mq:

        def one_round(rng: random.Random) -> None:
            Sabotage(mq, f"{next(numbers)}", delivery, rng, log).run()

        rounds.play(one_round, cases=6)
        assert mq.get_topic_info("probe").partitions[0].restarts


class Sabotage:
    """One round. Every fifth message is poison: it fails until it is a dead letter."""

    MESSAGES = 20

    def __init__(
        self, mq: MessageQueue, name: str, delivery: str, rng: random.Random, log: BrokerLog
    ) -> None:
        self.mq, self.rng, self.delivery, self.log = mq, rng, delivery, log
        self.topic, self.group = f"topic-{name}", f"group-{name}"
        self.partitions = rng.randint(1, 3)
        self.diaries: list[Diary] = []
        self.stored: list[StoredMessage] = []
        self.done = threading.Event()
        mq.create_topic(self.topic, self.partitions)
        mq.create_consumer_group(self.group, self.topic, delivery, max_failures=2)
        if "probe" not in mq.list_topics():
            mq.create_topic("probe")

    def run(self) -> None:
        with Team() as team:
            team.start(self.produce)
            for number in range(3):
                team.start(self.consume, f"c{number}", random.Random(self.rng.random()), team)
            team.start(self.stop_all, team)
            team.start(self.stop_some, random.Random(self.rng.random()), team)
            team.start(self.create_and_delete, team)
            while team.still() and not self.done.is_set():
                published = len(self.stored) == self.MESSAGES
                if self.mq.get_group_info(self.group).lag == 0 and published:
                    self.done.set()
        self.check()
        self.mq.delete_topic(self.topic)

    def produce(self) -> None:
        for start in range(0, self.MESSAGES, 4):
            batch = [Message(start + at, key=f"k{at}") for at in range(4)]
            self.stored += self.mq.publish_many(self.topic, batch)

    def consume(self, name: str, rng: random.Random, team: Team) -> None:
        for life in itertools.count():
            diary = Diary(f"{name}-{life}")
            self.diaries.append(diary)
            self.mq.add_consumer(self.group, diary.consumer_id)
            for _ in range(rng.randint(5, 20)):
                batch = self.mq.poll(self.group, diary.consumer_id, rng.choice([1, 5]), 0.01)
                diary.got(batch)
                for message in batch:
                    good = message.value % 5 != 0
                    diary.told(self.mq.acknowledge(self.group, message, good), message)
                if self.done.is_set() or not team.still():
                    return
            self.mq.remove_consumer(self.group, diary.consumer_id)

    def stop_all(self, team: Team) -> None:
        while team.still() and not self.done.is_set():
            for stopped in pykka.ActorRegistry.stop_all(block=False):
                stopped.get(timeout=WATCHDOG)  # False for one that was deleted meanwhile

    def stop_some(self, rng: random.Random, team: Team) -> None:
        while team.still() and not self.done.is_set():
            refs = pykka.ActorRegistry.get_all()
            rng.shuffle(refs)
            for ref in refs[:2]:
                ref.stop(block=True, timeout=WATCHDOG)

    def create_and_delete(self, team: Team) -> None:
        """Newborn actors are hit as well."""
        name = f"new-{self.topic}"
        while team.still() and not self.done.is_set():
            self.mq.create_topic(name, 3)
            try:
                self.mq.create_consumer_group(name, name)
            except ActorCrashedError:
                pass  # it says that the outcome is unknown, so nothing depends on it
            else:
                self.mq.add_consumer(name, "c")
                stored = self.mq.publish(name, Message("v"))
                [message] = self.mq.poll(name, "c", timeout=WATCHDOG)
                assert message.message_id == stored.message_id
            self.mq.delete_topic(name)

    def check(self) -> None:
        info = self.mq.get_group_info(self.group)
        assert (info.lag, info.in_flight) == (0, 0)
        assert self.mq.get_topic_info(self.topic).message_count == self.MESSAGES
        history = History(self.diaries, self.log.generations(self.group), self.partitions)
        history.check_attempts()
        history.check_order_of_first_deliveries()
        seen = {(partition, message.offset) for partition, _, message in history.deliveries()}
        assert seen == {(message.partition, message.offset) for message in self.stored}
        origins = [
            int(str(letter.headers[DeadLetterHeader.OFFSET.value])) * self.partitions
            + int(str(letter.headers[DeadLetterHeader.PARTITION.value]))
            for letter in self.dead_letters()
        ]
        if self.delivery == "at_most_once":
            assert all(m.delivery_attempt == 1 for _, _, m in history.deliveries())
            assert origins == []
        else:
            history.check_nothing_after_completion()
            poison = [m for m in self.stored if m.value % 5 == 0]
            assert sorted(origins) == sorted(
                m.offset * self.partitions + m.partition for m in poison
            ), "not one dead letter for each poison message"

    def dead_letters(self) -> list[StoredMessage]:
        name = f"__dlq_{self.topic}"
        if name not in self.mq.list_topics():
            return []
        letters = [
            letter
            for number in range(self.partitions)
            for letter in self.mq.partition_actor(name, number).read(0, 1000).get(timeout=WATCHDOG)
        ]
        self.mq.delete_topic(name)
        return letters


@pytest.mark.parametrize("threads", [1, 4])
def test_a_group_that_is_stopped_while_it_buries_stores_one_dead_letter(threads, rounds: Rounds):
    with broker_log(), MessageQueue(call_timeout=WATCHDOG, actor_threads=threads) as mq:
        mq.create_topic("t")
        mq.create_consumer_group("g", "t", max_failures=1)
        mq.add_consumer("g", "c")
        group = mq.group_actor("g")

        def one_round(rng: random.Random) -> None:
            mq.publish("t", Message("poison"))
            [message] = mq.poll("g", "c", timeout=WATCHDOG)
            buried = group.acknowledge(message, success=False)
            for _ in range(rng.randint(0, 3)):
                group.actor_ref.stop(block=False)
            assert buried.get(timeout=WATCHDOG) is AckResult.DEAD_LETTERED

        rounds.play(one_round, cases=2)
        assert mq.get_topic_info("__dlq_t").message_count == rounds.played
        assert mq.get_group_info("g").dead_lettered_total == rounds.played
