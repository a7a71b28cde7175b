"""Messages that fail, at random or always, with several consumers that come and go meanwhile."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from stress.harness import WATCHDOG, Diary, History, Team, broker_log

from dmq_actors import AckResult, DeadLetterHeader, Message, MessageQueue

if TYPE_CHECKING:
    from stress.harness import BrokerLog, Rounds

    from dmq_actors import DeliveredMessage, StoredMessage

pytestmark = pytest.mark.stress

MAX_FAILURES = 3
POISON = 99


@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_each_poison_message_becomes_one_dead_letter_and_all_others_are_completed(
    delivery, threads, rounds: Rounds
):
    numbers = itertools.count()
    with broker_log() as log, MessageQueue(call_timeout=WATCHDOG, actor_threads=threads) as mq:

        def one_round(rng: random.Random) -> None:
            Clinic(mq, f"{next(numbers)}", delivery, rng, log).run()

        rounds.play(one_round, cases=4)


class Clinic:
    """One round. The value of a message says at how many attempts it will fail: 0 to 2, or all."""

    def __init__(
        self, mq: MessageQueue, name: str, delivery: str, rng: random.Random, log: BrokerLog
    ) -> None:
        self.mq, self.rng, self.log = mq, rng, log
        self.topic, self.group = f"topic-{name}", f"group-{name}"
        self.partitions = rng.randint(1, 3)
        self.diaries: list[Diary] = []
        self.stored: list[StoredMessage] = []
        self.last_errors: dict[tuple[int, int], str] = {}
        self.published, self.done = threading.Event(), threading.Event()
        mq.create_topic(self.topic, self.partitions)
        mq.create_consumer_group(
            self.group,
            self.topic,
            delivery,
            max_failures=MAX_FAILURES,
            retry_backoff=rng.choice([0.0, 0.001, 0.003]),
            retry_order="key",
        )

    def run(self) -> None:
        with Team() as team:
            team.start(self.produce, random.Random(self.rng.random()))
            for number in range(4):
                team.start(self.consume, random.Random(self.rng.random()), f"c{number}", team)
            while team.still() and not self.done.is_set():
                published = self.published.is_set()
                if self.mq.get_group_info(self.group).lag == 0 and published:
                    self.done.set()
        self.check()
        self.mq.delete_topic(self.topic)

    def produce(self, rng: random.Random) -> None:
        for _ in range(6):
            batch = [
                Message(rng.choice([0, 0, 0, 1, 2, POISON]), key=rng.choice(["a", "b", None]))
                for _ in range(rng.randint(1, 6))
            ]
            self.stored += self.mq.publish_many(self.topic, batch)
        self.published.set()

    def consume(self, rng: random.Random, name: str, team: Team) -> None:
        for life in itertools.count():
            diary = Diary(f"{name}-{life}")
            self.diaries.append(diary)
            self.mq.add_consumer(self.group, diary.consumer_id)
            for _ in range(rng.randint(3, 30)):
                batch = self.mq.poll(self.group, diary.consumer_id, rng.choice([1, 5, 50]), 0.01)
                diary.got(batch)
                for message in batch:
                    self.treat(message, diary)
                if self.done.is_set() or not team.still():
                    return
            self.mq.remove_consumer(self.group, diary.consumer_id)

    def treat(self, message: DeliveredMessage, diary: Diary) -> None:
        """Let the first attempts fail; what is poison fails in all of them."""
        fails = message.value == POISON or message.delivery_attempt <= message.value
        error = f"{diary.consumer_id} at attempt {message.delivery_attempt}"
        result = self.mq.acknowledge(self.group, message, not fails, error=error)
        diary.told(result, message)
        if not fails:
            assert result in {AckResult.COMPLETED, AckResult.STALE}
        elif result is AckResult.DEAD_LETTERED:
            self.last_errors[message.partition, message.offset] = error

    def check(self) -> None:
        mq = self.mq
        info = mq.get_group_info(self.group)
        assert info.lag == info.in_flight == 0
        assert all(partition.retrying == partition.held == 0 for partition in info.partitions)
        poison = {
            (message.partition, message.offset): message
            for message in self.stored
            if message.value == POISON
        }
        letters = self.dead_letters()
        origins = [
            (int(header(letter, "PARTITION")), int(header(letter, "OFFSET"))) for letter in letters
        ]
        assert sorted(origins) == sorted(poison), "not one dead letter for each"
        assert info.dead_lettered_total == len(poison)
        for letter, origin in zip(letters, origins, strict=True):
            assert (letter.value, letter.key) == (poison[origin].value, poison[origin].key)
            assert header(letter, "MESSAGE_ID") == poison[origin].message_id
            assert header(letter, "FAILURES") == str(MAX_FAILURES)
            assert header(letter, "ERROR") == self.last_errors[origin]
        counted = Counter(
            (message.partition, message.offset, what)
            for diary in self.diaries
            for what, message in diary.entries
        )
        for partition, offset in poison:
            assert counted[partition, offset, "retrying"] == MAX_FAILURES - 1
            assert counted[partition, offset, "dead_lettered"] == 1

        history = History(self.diaries, self.log.generations(self.group), self.partitions)
        history.check_attempts()
        history.check_nothing_after_completion()
        history.check_order_of_first_deliveries()
        history.check_retries_hold_their_key()
        seen = {(partition, message.offset) for partition, _, message in history.deliveries()}
        assert seen == {(message.partition, message.offset) for message in self.stored}

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


def header(letter: StoredMessage, name: str) -> str:
    return str(letter.headers[DeadLetterHeader[name].value])


@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("threads", [1, 4])
def test_nacks_of_one_delivery_by_many_threads_count_each_and_bury_once(threads, rounds: Rounds):
    with broker_log(), MessageQueue(call_timeout=WATCHDOG, actor_threads=threads) as mq:
        mq.create_topic("t")
        mq.create_consumer_group("g", "t", max_failures=4)
        mq.add_consumer("g", "c")

        def one_round(rng: random.Random) -> None:
            mq.publish("t", Message("bad"))
            [message] = mq.poll("g", "c", timeout=WATCHDOG)
            results: list[AckResult] = []
            with Team() as team:
                for _ in range(rng.randint(4, 8)):
                    team.start(lambda: results.append(mq.acknowledge("g", message, success=False)))
            counted = Counter(results)
            assert counted[AckResult.RETRYING] == 3
            assert counted[AckResult.DEAD_LETTERED] == 1
            assert counted[AckResult.STALE] == len(results) - 4
            assert mq.poll("g", "c") == []

        rounds.play(one_round, cases=2)
        assert mq.get_topic_info("__dlq_t").message_count == rounds.played
        assert mq.get_consumer_lag("g") == {0: 0}
