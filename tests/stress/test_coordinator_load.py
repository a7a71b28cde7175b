"""Many threads create, delete, list, publish and poll at the same time, on the same few names."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from stress.harness import WATCHDOG, Team, broker_log, settled

from dmq_actors import (
    ConsumerExistsError,
    GroupExistsError,
    InvalidOffsetError,
    Message,
    MessageQueue,
    StaleAssignmentError,
    TopicExistsError,
    UnknownConsumerError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from stress.harness import Rounds

    from dmq_actors import Promise

pytestmark = pytest.mark.stress

TOPICS = [f"t{number}" for number in range(3)]
GROUPS = [f"g{number}" for number in range(3)]
MEMBERS = ["c0", "c1"]

GONE = (UnknownTopicError, UnknownGroupError)
"""Any call may meet a topic or group that another thread has just deleted."""


class Meddler:
    """One of the threads: does whatever comes to its mind, and minds only the right errors."""

    def __init__(self, mq: MessageQueue, rng: random.Random, promises: list[Promise[Any]]) -> None:
        self.mq, self.rng, self.promises = mq, rng, promises

    def meddle(self) -> None:
        actions = [
            (self.create_topic, (TopicExistsError,)),
            (self.create_group, (GroupExistsError,)),
            (self.delete_topic, ()),
            (self.delete_group, ()),
            (self.look, ()),
            (self.publish, ()),
            (self.publish, ()),
            (self.join, (ConsumerExistsError,)),
            (self.leave, (UnknownConsumerError,)),
            (self.poll, ()),
            (self.poll, ()),
            (self.commit, (UnknownConsumerError, StaleAssignmentError)),
            (self.seek, (InvalidOffsetError, UnknownPartitionError)),
            (self.promise_things, ()),
        ]
        for _ in range(20):
            action, allowed = self.rng.choice(actions)
            try:
                action(self.rng.choice(TOPICS), self.rng.choice(GROUPS))
            except (*GONE, *allowed):
                pass  # an answer like any other here

    def create_topic(self, topic: str, _group: str) -> None:
        count = self.rng.randint(1, 4)
        assert self.mq.create_topic(topic, count).num_partitions == count

    def create_group(self, topic: str, group: str) -> None:
        semantics = ["at_least_once", "at_most_once", "exactly_once"]
        self.mq.create_consumer_group(group, topic, self.rng.choice(semantics))

    def delete_topic(self, topic: str, _group: str) -> None:
        self.mq.delete_topic(topic)

    def delete_group(self, _topic: str, group: str) -> None:
        self.mq.delete_consumer_group(group)

    def look(self, topic: str, group: str) -> None:
        assert set(self.mq.list_topics()) <= {*TOPICS, *map("__dlq_{}".format, TOPICS)}
        assert set(self.mq.list_consumer_groups()) <= set(GROUPS)
        info = self.mq.get_topic_info(topic)
        assert len(info.partitions) == info.config.num_partitions
        described = self.mq.get_group_info(group)
        assert described.topic in TOPICS
        self.mq.get_consumer_lag(group)
        self.mq.partition_actor(topic, 0).read(0).get(timeout=WATCHDOG)

    def publish(self, topic: str, _group: str) -> None:
        batch = [Message("v", key=self.rng.choice(["a", "b", None])) for _ in range(3)]
        if self.rng.random() < 0.5:
            stored = self.mq.publish_many(topic, batch)
        else:
            stored = [self.mq.publish(topic, message) for message in batch]
        assert len(stored) == len(batch)

    def join(self, _topic: str, group: str) -> None:
        self.mq.add_consumer(group, self.rng.choice(MEMBERS))

    def leave(self, _topic: str, group: str) -> None:
        self.mq.remove_consumer(group, self.rng.choice(MEMBERS))

    def poll(self, _topic: str, group: str) -> None:
        member, wait = self.rng.choice(MEMBERS), self.rng.choice([0.0, 0.0, 0.01])
        for message in self.mq.poll(group, member, 5, wait):
            self.mq.acknowledge(group, message, self.rng.random() < 0.9)

    def commit(self, _topic: str, group: str) -> None:
        self.mq.commit(group, self.rng.choice(MEMBERS))

    def seek(self, _topic: str, group: str) -> None:
        self.mq.seek(group, self.rng.randint(0, 4), self.rng.choice([-1, -2, 3]))

    def promise_things(self, topic: str, group: str) -> None:
        """Ask without waiting, and let go on whatever comes of it."""
        mq, rng = self.mq, self.rng
        coordinator = mq.coordinator
        ask: list[Callable[[], Promise[Any]]] = [
            lambda: coordinator.publish(topic, Message("later")),
            lambda: coordinator.create_topic(topic, 2),
            lambda: coordinator.create_consumer_group(group, topic),
            lambda: coordinator.delete_consumer_group(group),
            lambda: coordinator.get_topic_info(topic),
            lambda: coordinator.add_consumer(group, "c0"),
            lambda: mq.group_actor(group).info(),
            lambda: mq.group_actor(group).lag(),
            lambda: mq.group_actor(group).seek(0, -1),
            lambda: mq.group_actor(group).poll("c0", 5, 0.05),
            lambda: mq.partition_actor(topic, 0).bounds(),
        ]
        self.promises += [rng.choice(ask)() for _ in range(4)]


@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("threads", [1, 4])
def test_a_coordinator_under_load_answers_everything_and_stays_consistent(threads, rounds: Rounds):
    with broker_log(), MessageQueue(call_timeout=WATCHDOG, actor_threads=threads) as mq:

        def one_round(rng: random.Random) -> None:
            promises: list[Promise[Any]] = []
            with Team() as team:
                for _ in range(6):
                    team.start(Meddler(mq, random.Random(rng.random()), promises).meddle)
            allowed = (
                *GONE,
                TopicExistsError,
                GroupExistsError,
                ConsumerExistsError,
                UnknownPartitionError,
            )
            wrong = [e for e in settled(promises) if e is not None and not isinstance(e, allowed)]
            assert not wrong, wrong
            check_consistent(mq)
            tidy_up(mq)

        rounds.play(one_round, cases=2)


def check_consistent(mq: MessageQueue) -> None:
    """What is left after the storm works: all of it is known, bound, and delivers."""
    topics, groups = mq.list_topics(), mq.list_consumer_groups()
    infos = {topic: mq.get_topic_info(topic) for topic in topics}
    described = {group: mq.get_group_info(group) for group in groups}
    for group, info in described.items():
        assert info.topic in topics
        assert group in infos[info.topic].groups
        assert len(info.partitions) == infos[info.topic].num_partitions
    assert sorted(group for info in infos.values() for group in info.groups) == sorted(groups)
    actors = 1 + len(groups) + sum(info.num_partitions for info in infos.values())
    assert len(pykka.ActorRegistry.get_all()) == actors
    for group, info in described.items():
        for member in info.members:
            mq.remove_consumer(group, member)
        mq.add_consumer(group, "last")
        stored = mq.publish(info.topic, Message("last"))
        seen: list[str] = []
        while stored.message_id not in seen:
            batch = mq.poll(group, "last", timeout=WATCHDOG)
            assert batch, f"{group} on {info.topic} delivers nothing"
            seen += [message.message_id for message in batch]


def tidy_up(mq: MessageQueue) -> None:
    for topic in mq.list_topics():
        mq.delete_topic(topic)
    assert mq.list_topics() == mq.list_consumer_groups() == []
    assert len(pykka.ActorRegistry.get_all()) == 1


@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("threads", [1, 4])
def test_a_topic_that_is_deleted_lets_nobody_wait(threads, rounds: Rounds):
    """Blocked polls, publishes on the way, questions on the way: all of them end as they should."""
    with broker_log(), MessageQueue(call_timeout=WATCHDOG, actor_threads=threads) as mq:

        def one_round(rng: random.Random) -> None:
            mq.create_topic("t", 3)
            for group in GROUPS:
                mq.create_consumer_group(group, "t")
                mq.add_consumer(group, "c0")
            others = [
                ask
                for group in map(mq.group_actor, GROUPS)
                for ask in (group.info, group.lag, lambda group=group: group.seek(0, -1))
            ]
            coordinator = mq.coordinator
            polls = [
                mq.group_actor(group).poll("c0", 1, rng.choice([30.0, None])) for group in GROUPS
            ]
            promises: list[Promise[Any]] = []
            published: list[Promise[Any]] = []

            def poll(group: str) -> None:
                with pytest.raises(UnknownGroupError):
                    while True:
                        mq.poll(group, "c0", timeout=30.0)

            def publish() -> None:
                published.extend(coordinator.publish("t", Message("v")) for _ in range(10))

            def ask() -> None:
                promises.extend(rng.choice(others)() for _ in range(10))

            with Team() as team:
                for group in GROUPS:
                    team.start(poll, group)
                team.start(publish)
                team.start(ask)
                team.start(mq.delete_topic, "t")
            for outcomes, allowed in (
                (settled(polls), UnknownGroupError),
                (settled(promises), UnknownGroupError),
                (settled(published), UnknownTopicError),
            ):
                wrong = [e for e in outcomes if e is not None and not isinstance(e, allowed)]
                assert not wrong, wrong
            assert mq.list_topics() == mq.list_consumer_groups() == []
            assert len(pykka.ActorRegistry.get_all()) == 1
            assert mq.create_topic("t", 1).published_total == 0
            assert mq.publish("t", Message("first")).offset == 0
            mq.delete_topic("t")

        rounds.play(one_round, cases=2)


def test_topics_of_many_threads_do_not_meet(rounds: Rounds):
    """Each thread has names of its own and sees nothing but what it did itself."""
    numbers = itertools.count()
    with broker_log(), MessageQueue(call_timeout=WATCHDOG, actor_threads=2) as mq:

        def one_round(rng: random.Random) -> None:
            def live() -> None:
                name = f"own-{next(numbers)}"
                mq.create_topic(name, 2)
                mq.create_consumer_group(name, name)
                mq.add_consumer(name, "c")
                sent = [mq.publish(name, Message(number)).value for number in range(size)]
                got: list[int] = []
                while len(got) < size:
                    got += [message.value for message in mq.poll(name, "c", timeout=WATCHDOG)]
                assert sorted(got) == sent
                mq.commit(name, "c")
                assert mq.get_group_info(name).lag == 0
                mq.delete_topic(name)

            size = rng.randint(1, 5)
            with Team() as team:
                for _ in range(4):
                    team.start(live)

        rounds.play(one_round)
