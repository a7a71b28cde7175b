"""The whole facade against a dumb model, step by step; the invariants of design §7 after each."""

from __future__ import annotations

import contextlib

from facade.model import DONE, FLYING, ModelGroup, ModelTopic
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dmq_actors import (
    AckResult,
    ConsumerExistsError,
    GroupExistsError,
    InvalidOffsetError,
    Message,
    MessageQueue,
    StaleAssignmentError,
    TopicExistsError,
    UnknownConsumerError,
    UnknownGroupError,
    UnknownTopicError,
)
from dmq_actors.testing import ManualClock

TOPICS = st.sampled_from(["orders", "kept-short"])
GROUPS = st.sampled_from(["billing", "search"])
DELIVERIES = st.sampled_from(["at_least_once", "at_most_once", "exactly_once"])
RARELY = st.integers(0, 5).map(lambda number: number == 5)
BACKOFFS = st.sampled_from([0.0, 10.0])
CONSUMERS = st.sampled_from(["ann", "bob", "cid"])
KEYS = st.sampled_from(["a", "b", "a", None])


class Broker(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.mq = MessageQueue(clock=self.clock, call_timeout=10.0)
        self.topics: dict[str, ModelTopic] = {}
        self.groups: dict[str, ModelGroup] = {}
        self.delivered: list[tuple[str, ModelGroup, object]] = []
        self.dead: dict[str, list[str]] = {}
        self.published = 0

    def teardown(self):
        self.check_that_everything_can_be_drained()
        assert self.mq.close().clean

    @initialize(
        count=st.integers(1, 2),
        delivery=DELIVERIES,
        backoff=BACKOFFS,
        keys=st.lists(KEYS, min_size=4, max_size=8),
    )
    def begin_with_something(self, count, delivery, backoff, keys):
        self.create_topic("orders", count)
        self.create_group("billing", "orders", delivery, backoff, "earliest")
        self.add_consumer("billing", "ann")
        self.publish_all("orders", keys)

    # Topics and groups

    @rule(topic=TOPICS, count=st.integers(1, 3))
    def create_topic(self, topic, count):
        retention = 4 if topic == "kept-short" else None
        try:
            self.mq.create_topic(topic, count, retention_count=retention)
        except TopicExistsError:
            assert topic in self.topics
        else:
            assert topic not in self.topics
            self.topics[topic] = ModelTopic(count, retention)

    @precondition(lambda self: len(self.topics) > 1)
    @rule(topic=TOPICS, really=RARELY)
    def delete_topic(self, topic, really):
        if not really:
            return
        try:
            self.mq.delete_topic(topic)
        except UnknownTopicError:
            assert topic not in self.topics
        else:
            del self.topics[topic]
            self.groups = {g: m for g, m in self.groups.items() if m.topic_name != topic}

    @rule(
        group=GROUPS,
        topic=TOPICS,
        delivery=DELIVERIES,
        backoff=BACKOFFS,
        start=st.sampled_from(["earliest", "latest"]),
    )
    def create_group(self, group, topic, delivery, backoff, start):
        try:
            self.mq.create_consumer_group(
                group, topic, delivery, retry_backoff=backoff, start_from=start
            )
        except UnknownTopicError:
            assert topic not in self.topics
        except GroupExistsError:
            assert group in self.groups
        else:
            model = self.topics[topic]
            offsets = [
                len(log) if start == "latest" else model.base(p) for p, log in enumerate(model.logs)
            ]
            self.groups[group] = ModelGroup(topic, model, delivery, backoff, offsets)

    @precondition(lambda self: len(self.groups) > 1)
    @rule(group=GROUPS, really=RARELY)
    def delete_group(self, group, really):
        if not really:
            return
        try:
            self.mq.delete_consumer_group(group)
        except UnknownGroupError:
            assert group not in self.groups
        else:
            del self.groups[group]

    @rule(group=GROUPS, consumer=CONSUMERS)
    def add_consumer(self, group, consumer):
        try:
            assignments = self.mq.add_consumer(group, consumer)
        except UnknownGroupError:
            assert group not in self.groups
        except ConsumerExistsError:
            assert consumer in self.groups[group].members
        else:
            model = self.groups[group]
            model.rebalance([*model.members, consumer])
            assert assignments == model.assignments()

    @rule(group=GROUPS, consumer=CONSUMERS)
    def remove_consumer(self, group, consumer):
        try:
            assignments = self.mq.remove_consumer(group, consumer)
        except UnknownGroupError:
            assert group not in self.groups
        except UnknownConsumerError:
            assert consumer not in self.groups[group].members
        else:
            model = self.groups[group]
            model.rebalance([m for m in model.members if m != consumer])
            assert assignments == model.assignments()

    # Messages

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), key=KEYS)
    def publish(self, data, key):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        self.published += 1
        value = f"v{self.published}"
        stored = self.mq.publish(topic, Message(value, key=key))
        assert (stored.partition, stored.offset) == self.topics[topic].publish(value, key)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), keys=st.lists(KEYS, max_size=6))
    def publish_many(self, data, keys):
        self.publish_all(data.draw(st.sampled_from(sorted(self.topics))), keys)

    def publish_all(self, topic, keys):
        values = [f"v{self.published + at}" for at in range(len(keys))]
        self.published += len(keys)
        messages = [Message(value, key=key) for value, key in zip(values, keys, strict=True)]
        stored = self.mq.publish_many(topic, messages)
        assert [message.value for message in stored] == values
        assert [(m.partition, m.offset) for m in stored] == [
            self.topics[topic].publish(value, key) for value, key in zip(values, keys, strict=True)
        ]

    @precondition(lambda self: self.groups)
    @rule(data=st.data(), room=st.integers(1, 6))
    def poll(self, data, room):
        group = data.draw(st.sampled_from(sorted(self.groups)))
        consumer = data.draw(st.sampled_from([*self.groups[group].members, "nobody"]))
        self.poll_and_check(group, consumer, room)

    def poll_and_check(self, group, consumer, room):
        model, now = self.groups[group], self.clock.monotonic()
        before = self.mq.get_group_info(group).partitions
        polled = self.mq.poll(group, consumer, room)
        owned = [p for p in range(model.topic.count) if model.owner(p) == consumer]
        allowed = {p: model.deliverable(p, now, before[p].current_offset) for p in owned}
        assert len(polled) <= room
        assert bool(polled) == any(allowed.values()), (polled, allowed)
        for partition in owned:
            got = [m.offset for m in polled if m.partition == partition]
            assert got == allowed[partition][: len(got)], (partition, got, allowed)
        for message in polled:
            assert message.partition in owned
            value, key = model.topic.logs[message.partition][message.offset]
            assert (message.value, message.key) == (value, key)
            assert message.generation == model.generation
            attempt = model.deliver(consumer, message.partition, message.offset)
            assert message.delivery_attempt == attempt
            model.cells[message.partition][message.offset].epoch = message.epoch
            self.delivered.append((group, model, message))
        return polled

    def pick(self, data):
        group, model, message = data.draw(st.sampled_from(self.delivered[-12:]))
        return group, model, message, self.groups.get(group) is model

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def acknowledge(self, data):
        group, model, message, alive = self.pick(data)
        if not alive:
            with contextlib.suppress(UnknownGroupError):
                assert self.mq.acknowledge(group, message) is AckResult.STALE
            return
        assert self.mq.acknowledge(group, message) == model.ack(message)

    @precondition(lambda self: self.delivered)
    @rule(data=st.data(), times=st.integers(1, 2))
    def nack(self, data, times):
        group, model, message, alive = self.pick(data)
        if not alive or model.topic.retention_count is not None:
            return
        for _ in range(times):
            self.nack_once(group, model, message)

    def nack_once(self, group, model, message):
        result = self.mq.acknowledge(group, message, success=False, error="no")
        assert result == model.nack(message, self.clock.monotonic())
        if result is AckResult.DEAD_LETTERED:
            self.dead.setdefault(model.topic_name, []).append(message.value)

    @precondition(lambda self: self.groups)
    @rule(data=st.data(), consumer=CONSUMERS)
    def commit(self, data, consumer):
        group = data.draw(st.sampled_from(sorted(self.groups)))
        model = self.groups[group]
        try:
            committed = self.mq.commit(group, consumer)
        except UnknownConsumerError:
            assert consumer not in model.members
        else:
            model.commit(consumer)
            owned = [p for p in range(model.topic.count) if model.owner(p) == consumer]
            assert sorted(committed) == owned

    @precondition(lambda self: self.groups)
    @rule(data=st.data(), consumer=CONSUMERS, partition=st.integers(0, 2), by=st.integers(-1, 5))
    def commit_offset(self, data, consumer, partition, by):
        group = data.draw(st.sampled_from(sorted(self.groups)))
        model = self.groups[group]
        if partition >= model.topic.count:
            return
        info = self.mq.get_group_info(group).partitions[partition]
        offset = max(info.committed_offset + by, 0)
        try:
            self.mq.commit(group, consumer, {partition: offset})
        except StaleAssignmentError:
            assert model.owner(partition) != consumer
        except InvalidOffsetError:
            assert not info.committed_offset <= offset <= info.current_offset
        else:
            assert info.committed_offset <= offset <= info.current_offset
            model.commit_to(partition, offset)

    @precondition(lambda self: self.groups)
    @rule(data=st.data(), partition=st.integers(0, 2), to=st.integers(-2, 12))
    def seek(self, data, partition, to):
        group = data.draw(st.sampled_from(sorted(self.groups)))
        model = self.groups[group]
        if partition >= model.topic.count:
            return
        current = self.mq.get_group_info(group).partitions[partition].current_offset
        base, end = model.topic.base(partition), len(model.topic.logs[partition])
        wanted = {-1: base, -2: end}.get(to, to)
        try:
            assert self.mq.seek(group, partition, to) == wanted
        except InvalidOffsetError:
            assert not base <= wanted <= end
        else:
            assert base <= wanted <= end
            model.seek(partition, wanted, current)

    @rule(seconds=st.sampled_from([1.0, 10.0, 25.0]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    # What must always be true

    @invariant()
    def names_are_known(self):
        topics = [t for t in self.mq.list_topics() if not t.startswith("__dlq_")]
        assert sorted(topics) == sorted(self.topics)
        assert sorted(self.mq.list_consumer_groups()) == sorted(self.groups)

    @invariant()
    def logs_are_as_published(self):
        for name, model in self.topics.items():
            for info in self.mq.get_topic_info(name).partitions:
                assert info.base_offset == model.base(info.partition)
                assert info.next_offset == len(model.logs[info.partition])

    @invariant()
    def groups_are_as_the_model_says(self):
        for name, model in self.groups.items():
            info = self.mq.get_group_info(name)
            assert info.generation == model.generation
            assert info.assignments == model.assignments()
            for part in info.partitions:
                base = model.topic.base(part.partition)
                end = len(model.topic.logs[part.partition])
                committed = model.committed[part.partition]
                assert part.committed_offset <= part.current_offset <= end
                assert max(part.committed_offset, base) == max(committed, base)
                assert part.lag == end - max(committed, base)
                flying = [o for o, c in model.cells[part.partition].items() if c.state == FLYING]
                if model.delivery != "at_most_once":
                    assert part.in_flight >= len(flying)

    def check_that_everything_can_be_drained(self):
        """At-least-once: whatever happened, all that is retained gets done in the end."""
        self.clock.advance(1_000)
        for name, model in self.groups.items():
            if not model.members:
                self.mq.add_consumer(name, "ann")
                model.rebalance(["ann"])
            for consumer in list(model.members):
                while polled := self.poll_and_check(name, consumer, 50):
                    for message in polled:
                        assert self.mq.acknowledge(name, message) == model.ack(message)
                self.mq.commit(name, consumer)
                model.commit(consumer)
            for partition, lag in self.mq.get_consumer_lag(name).items():
                open_cells = [
                    o
                    for o in range(model.topic.base(partition), len(model.topic.logs[partition]))
                    if model.cell(partition, o).state != DONE and o >= model.committed[partition]
                ]
                assert lag == len(open_cells) == 0, (name, partition, open_cells)
        for topic, values in self.dead.items():
            letters = self.mq.get_topic_info("__dlq_" + topic).message_count
            assert letters == len(values)


TestBroker = Broker.TestCase
TestBroker.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
