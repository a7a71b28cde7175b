"""A few hundred orders of the same small workload: the invariants of the design hold in each."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from dmq_actors import AckResult, Message, MessageQueue
from dmq_actors.testing import ManualClock, SeededScheduler

SEEDS = 300
MESSAGES = 12
PARTITIONS = 3
MEMBERS = ("a", "b", "c")


class Run:
    """Two producers and three members that come and go, in one order of the actors."""

    def __init__(self, seed: int, delivery: str) -> None:
        self.random = random.Random(seed)
        self.exactly_once = delivery == "exactly_once"
        self.mq = MessageQueue(scheduler=SeededScheduler(seed), clock=ManualClock())
        self.mq.create_topic("t", PARTITIONS)
        self.mq.create_consumer_group("g", "t", delivery, max_failures=3, retry_backoff=1.0)
        self.group = self.mq.group_actor("g")
        self.members: set[str] = set()
        self.changes = 0
        self.committed = [0] * PARTITIONS
        self.delivered = defaultdict(list)
        self.dead: list[str] = []
        self.completed: list[str] = []

    def play(self) -> None:
        mq, pending = self.mq, []
        self.toggle("a")
        for number in range(MESSAGES):
            for producer in ("p", "q"):
                message = Message(f"{producer}{number}", key=f"{producer}{number % 2}")
                pending.append(mq.coordinator.publish("t", message))
            polls = [self.group.poll(name, 4, timeout=0.5) for name in (*MEMBERS, *MEMBERS)]
            if self.random.random() < 0.3:
                self.toggle(self.random.choice(MEMBERS))
            for poll in polls:
                self.work_on(poll.get())
            self.check()
        for promise in pending:
            promise.get()
        if not self.members:
            self.toggle("a")
        self.drain()

    def toggle(self, name: str) -> None:
        """One membership change, while others are under way."""
        change = self.mq.remove_consumer if name in self.members else self.mq.add_consumer
        assignments = change("g", name)
        self.members ^= {name}
        self.changes += 1
        assert set(assignments) == self.members
        owned = sorted(p for partitions in assignments.values() for p in partitions)
        assert owned == (list(range(PARTITIONS)) if self.members else [])

    def work_on(self, messages: list) -> None:
        waiting = []
        for message in messages:
            self.delivered[message.key].append(message)
            success = self.random.random() < 0.8
            waiting.append((message, success, self.group.acknowledge(message, success)))
        for message, success, acknowledged in waiting:
            result = acknowledged.get()
            if result is AckResult.COMPLETED:
                self.completed.append(message.value)
            elif result is AckResult.DEAD_LETTERED:
                self.dead.append(message.value)
            elif result is AckResult.RETRYING:
                assert not success

    def check(self) -> None:
        info = self.mq.get_group_info("g")
        assert info.generation == self.changes
        topic = self.mq.get_topic_info("t")
        for place, log in zip(info.partitions, topic.partitions, strict=True):
            assert self.committed[place.partition] <= place.committed_offset
            assert place.committed_offset <= place.current_offset <= log.next_offset
            assert place.lag >= 0
            self.committed[place.partition] = place.committed_offset

    def drain(self) -> None:
        for _ in range(10 * MESSAGES):  # time passes by itself, so a lost message would not hang
            if not self.mq.get_group_info("g").lag:
                return
            for name in sorted(self.members):
                self.work_on(self.mq.poll("g", name, timeout=5.0))
            self.check()
        pytest.fail(f"a message is lost: {self.mq.get_group_info('g')}")

    def check_end(self) -> None:
        everything = sorted(f"{p}{n}" for p in ("p", "q") for n in range(MESSAGES))
        assert sorted(self.completed + self.dead) == everything
        for messages in self.delivered.values():
            firsts = [m.offset for m in messages if m.delivery_attempt == 1]
            first_seen = list(dict.fromkeys(m.offset for m in messages))
            assert first_seen == sorted(first_seen), "a key out of order"
            if self.exactly_once:
                assert len(firsts) == len(set(firsts))
        report = self.mq.close()
        assert (report.clean, report.actor_failures, report.in_flight) == (True, (), {})


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_invariants_hold_in_hundreds_of_orders(delivery):
    for seed in range(SEEDS // 2):
        run = Run(seed, delivery)
        try:
            run.play()
            run.check_end()
        except BaseException as error:
            error.add_note(f"seed {seed}, {delivery}")
            raise
        finally:
            run.mq.close()
