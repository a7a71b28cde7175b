"""The proxies that users get: `mq.coordinator`, `mq.partition_actor(…)`, `mq.group_actor(…)`."""

from __future__ import annotations

import sys

import pykka
import pytest
from support import WATCHDOG, Crew

from dmq_actors import (
    AckResult,
    BlockingInActorError,
    BrokerClosedError,
    ConsumerExistsError,
    CoordinatorProxy,
    DMQError,
    GroupExistsError,
    InvalidArgumentError,
    InvalidTypeError,
    Message,
    MessageQueue,
    Promise,
    TopicExistsError,
    UnknownConsumerError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)


def answer(promise):
    assert isinstance(promise, Promise)
    return promise.get(timeout=WATCHDOG)


@pytest.fixture
def coordinator(mq):
    return mq.coordinator


@pytest.fixture
def group(mq, coordinator):
    coordinator.create_topic("t", 2)
    coordinator.create_consumer_group("g", "t")
    answer(coordinator.add_consumer("g", "c"))
    return mq.group_actor("g")


# The coordinator


def test_everything_the_facade_does_with_topics_and_groups_goes_by_proxy(coordinator):
    assert answer(coordinator.create_topic("t", 2, retention_count=5)).num_partitions == 2
    assert answer(coordinator.create_consumer_group("g", "t", "exactly_once")) is None
    assert answer(coordinator.add_consumer("g", "c")) == {"c": [0, 1]}
    assert answer(coordinator.list_topics()) == ["t"]
    assert answer(coordinator.list_consumer_groups()) == ["g"]
    assert answer(coordinator.get_topic_info("t")).groups == ("g",)
    assert answer(coordinator.remove_consumer("g", "c")) == {}
    assert answer(coordinator.delete_consumer_group("g")) is None
    assert answer(coordinator.delete_topic("t")) is None
    assert answer(coordinator.list_topics()) == []


def test_un_awaited_calls_take_effect_in_their_order(mq, coordinator):
    for _ in range(50):
        coordinator.create_topic("t")
        coordinator.create_consumer_group("g", "t")
        coordinator.add_consumer("g", "c")
        assert answer(coordinator.add_consumer("g", "d")) == {"c": [0], "d": []}
        coordinator.delete_topic("t")
    assert mq.list_topics() == []


@pytest.mark.parametrize("last", ["remove_consumer", "delete_consumer_group"])
def test_what_is_undone_before_it_was_awaited_is_undone(mq, coordinator, last):
    mq.create_topic("t")
    coordinator.create_consumer_group("g", "t")
    coordinator.add_consumer("g", "c")
    if last == "remove_consumer":
        assert answer(coordinator.remove_consumer("g", "c")) == {}
        assert mq.get_group_info("g").members == ()
    else:
        answer(coordinator.delete_consumer_group("g"))
        assert mq.list_consumer_groups() == []


def test_publishing_by_proxy_is_publishing(mq, coordinator):
    mq.create_topic("t")
    one = coordinator.publish("t", Message("one"))
    many = coordinator.publish_many("t", [Message("two"), Message("three")])
    assert (answer(one).offset, [message.offset for message in answer(many)]) == (0, [1, 2])
    assert answer(coordinator.publish_many("t", [])) == []
    placed = coordinator.publish("t", Message("four"), partition=0)
    assert answer(placed).value == "four"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("nowhere", Message("m")), UnknownTopicError),
        (("not a name!", Message("m")), InvalidArgumentError),
        ((5, Message("m")), InvalidTypeError),
        (("t", "no message"), InvalidTypeError),
        (("t", Message("m", key=5)), InvalidTypeError),
        (("t", Message(sys)), InvalidArgumentError),
    ],
)
def test_what_cannot_be_published_fails_the_promise_and_raises_nothing(
    mq, coordinator, args, error
):
    mq.create_topic("t")
    with pytest.raises(error):
        answer(coordinator.publish(*args))
    topic, message = args
    with pytest.raises(error):
        answer(coordinator.publish_many(topic, [Message("good"), message]))
    assert mq.get_topic_info("t").message_count == 0


@pytest.mark.parametrize("partition", [2, -1, "0", True])
def test_a_partition_that_there_is_not_fails_the_promise(mq, coordinator, partition):
    mq.create_topic("t", 2)
    with pytest.raises(InvalidArgumentError):
        answer(coordinator.publish("t", Message("m"), partition=partition))


def test_a_partitioner_of_the_users_own_runs_in_the_caller(mq, coordinator):
    def partitioner(_key, _count):
        return mq.list_topics() and 1  # would wait for itself in an actor

    mq.create_topic("t", 2, partitioner=partitioner)
    assert answer(coordinator.publish("t", Message("m", key="k"))).partition == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: c.create_topic("t"), TopicExistsError),
        (lambda c: c.create_consumer_group("g", "t"), GroupExistsError),
        (lambda c: c.create_consumer_group("h", "nowhere"), UnknownTopicError),
        (lambda c: c.add_consumer("g", "c"), ConsumerExistsError),
        (lambda c: c.remove_consumer("g", "nobody"), UnknownConsumerError),
        (lambda c: c.delete_consumer_group("nowhere"), UnknownGroupError),
        (lambda c: c.get_topic_info("nowhere"), UnknownTopicError),
        (lambda c: c.create_topic("t2", 0), InvalidArgumentError),
        (lambda c: c.create_topic("t2", nonsense=1), TypeError),
        (lambda c: c.create_topic(), TypeError),
    ],
)
@pytest.mark.usefixtures("group")
def test_what_the_coordinator_refuses_fails_the_promise(coordinator, call, error, caplog):
    with pytest.raises(error):
        answer(call(coordinator))
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_defer_asks_for_no_answer_and_its_errors_are_logged(mq, coordinator, caplog):
    assert coordinator.create_topic.defer("t") is None
    coordinator.create_topic.defer("t")
    assert mq.list_topics() == ["t"]
    failed = [record for record in caplog.records if record.dmq["event"] == "actor.failed"]
    assert len(failed) == 1
    assert [failure.actor for failure in mq.take_actor_failures()] == ["coordinator"]


def test_the_coordinator_is_the_same_proxy_each_time(mq):
    assert mq.coordinator is mq.coordinator
    assert isinstance(mq.coordinator, CoordinatorProxy)
    assert isinstance(mq.coordinator, pykka.ActorProxy)


@pytest.mark.parametrize("name", ["_traffic", "_on_stop", "no_such_method"])
def test_what_is_not_public_is_not_there(coordinator, name):
    with pytest.raises(AttributeError):
        getattr(coordinator, name)


def test_attributes_cannot_be_set_by_proxy(coordinator, group):
    for proxy in (coordinator, group):
        with pytest.raises(InvalidArgumentError, match="cannot be set"):
            proxy.restarts = 5


# Partitions


def test_a_partition_by_proxy_can_be_looked_at(mq):
    mq.create_topic("t", 2)
    mq.publish("t", Message("m"), partition=1)
    proxy = mq.partition_actor("t", 1)
    assert answer(proxy.bounds()) == (0, 1)
    assert [message.value for message in answer(proxy.read(0))] == ["m"]
    assert answer(proxy.info()).message_count == 1


def test_a_partition_that_there_is_not_has_no_proxy(mq):
    mq.create_topic("t", 2)
    with pytest.raises(UnknownTopicError):
        mq.partition_actor("nowhere", 0)
    with pytest.raises(UnknownPartitionError):
        mq.partition_actor("t", 2)


def test_a_proxy_of_a_deleted_topic_says_so(mq):
    mq.create_topic("t")
    proxy = mq.partition_actor("t", 0)
    mq.delete_topic("t")
    mq.create_topic("t")
    with pytest.raises(UnknownTopicError, match="deleted"):
        answer(proxy.bounds())


# Groups


def test_everything_the_facade_does_with_a_group_goes_by_proxy(mq, group):
    mq.publish_many("t", [Message(number) for number in range(4)])
    assert answer(group.add_consumer("d")) == {"c": [0], "d": [1]}
    assert answer(group.remove_consumer("d")) == {"c": [0, 1]}
    first, *_ = answer(group.poll("c", 3, 0.0))
    assert answer(group.acknowledge(first)) is AckResult.COMPLETED
    assert sum(answer(group.commit("c")).values()) == 3
    assert answer(group.lag()) in ({0: 1, 1: 0}, {0: 0, 1: 1})
    assert answer(group.seek(0, -1)) == 0
    assert answer(group.info()).members == ("c",)


def test_a_nack_by_proxy_counts(mq, group):
    mq.publish("t", Message("m"))
    [message] = answer(group.poll("c", 1, WATCHDOG))
    assert answer(group.acknowledge(message, success=False)) is AckResult.RETRYING
    [again] = answer(group.poll("c", 1, WATCHDOG))
    assert again.delivery_attempt == 2


def test_a_long_poll_by_proxy_costs_no_thread_and_blocks_nobody(mq, group):
    polls = [group.poll("c", 1, 60.0) for _ in range(500)]
    mq.publish_many("t", [Message(number) for number in range(500)])
    got = [message.value for promise in polls for message in answer(promise)]
    assert sorted(got) == list(range(500))


def test_a_proxy_of_a_deleted_group_says_so(mq, group):
    waiting = group.poll("c", 1, None)
    mq.delete_consumer_group("g")
    for promise in (waiting, group.info(), group.poll("c"), group.commit("c")):
        with pytest.raises(UnknownGroupError):
            answer(promise)
    with pytest.raises(UnknownGroupError):
        group.commit.defer("c")
    with pytest.raises(UnknownGroupError):
        mq.group_actor("g")


def test_a_group_that_is_deleted_while_its_proxy_is_made_is_an_unknown_group():
    """Whoever asks for a proxy gets one, or an error of ours; never one of pykka's."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with MessageQueue(call_timeout=WATCHDOG) as mq:
            mq.create_topic("t")
            deleted = []

            def come_and_go():
                for _ in range(300):
                    mq.create_consumer_group("g", "t")
                    mq.delete_consumer_group("g")
                deleted.append("all")

            def look():
                while not deleted:
                    try:
                        mq.group_actor("g")
                    except UnknownGroupError:
                        continue

            with Crew(30) as crew:
                crew.start(come_and_go)
                for _ in range(3):
                    crew.start(look)
    finally:
        sys.setswitchinterval(before)


# All of them


def test_proxies_of_a_closed_broker_say_that_it_is_closed():
    with MessageQueue() as mq:
        mq.create_topic("t")
        mq.create_consumer_group("g", "t")
        coordinator, group, partition = (
            mq.coordinator,
            mq.group_actor("g"),
            mq.partition_actor("t", 0),
        )
    for promise in (
        coordinator.list_topics(),
        coordinator.create_topic("u"),
        coordinator.publish("t", Message("m")),
        coordinator.publish_many("t", [Message("m")]),
        group.info(),
        group.poll("c"),
        partition.bounds(),
    ):
        with pytest.raises(BrokerClosedError):
            answer(promise)
    for call in (
        lambda: coordinator.list_topics.defer(),
        lambda: mq.coordinator,
        lambda: mq.group_actor("g"),
        lambda: mq.partition_actor("t", 0),
    ):
        with pytest.raises(BrokerClosedError):
            call()


def test_waiting_in_a_callback_of_an_actor_is_refused_and_not_a_deadlock(mq, coordinator):
    refused = []

    def wait(_done):
        try:
            mq.publish("t", Message("from a callback"))
        except DMQError as error:
            refused.append(error)

    mq.create_topic("t")
    for _ in range(50):
        coordinator.list_topics().add_done_callback(wait)
    assert mq.list_topics() == ["t"]
    # Some were done before they got their callback, which then ran in this thread.
    assert all(isinstance(error, BlockingInActorError) for error in refused)
    assert mq.get_topic_info("t").message_count == 50
