"""`ConsumerGroupActor` through its reference, on a manual clock."""

from __future__ import annotations

import threading

import pytest
from support import WATCHDOG, Crew, HeldActor

from dmq_actors import (
    BEGINNING,
    END,
    AckResult,
    ActorCrashedError,
    BrokerClosedError,
    ConsumerExistsError,
    DMQError,
    InvalidArgumentError,
    InvalidOffsetError,
    InvalidTypeError,
    Message,
    OffsetLostError,
    StaleAssignmentError,
    UnknownConsumerError,
    UnknownGroupError,
    UnknownPartitionError,
)
from dmq_actors._actors.group import ConsumerGroupActor
from dmq_actors._actors.partition import PartitionActor
from dmq_actors._core.batch import prepare
from dmq_actors._core.group_state import GroupState
from dmq_actors._core.options import group_config, topic_config
from dmq_actors._core.partition_log import PartitionLog
from dmq_actors._runtime.promise import Promise
from dmq_actors._runtime.ref import Call


class Group:
    """A group actor on partitions of its own, and short words for what is asked of it."""

    def __init__(self, stage, clock, delivery="at_least_once", *, topic=None, **options):
        self.stage, self.clock = stage, clock
        self.topic = topic_config(**{"num_partitions": 1, **(topic or {})})
        self.partitions = [
            stage.spawn(PartitionActor, PartitionLog("t", number, self.topic), clock)
            for number in range(self.topic.num_partitions)
        ]
        self.letters = []
        self.store = self._store
        config = group_config(delivery, **options)
        state = GroupState("g", "t", [0] * len(self.partitions), config, incarnation=1)
        self.ref = stage.spawn(
            ConsumerGroupActor,
            state,
            self.wrapped(self.partitions),
            lambda *letter: self.store(*letter),
            clock,
        )

    def wrapped(self, partitions):
        return partitions

    def _store(self, partition, batch):
        self.letters.append((partition, batch.messages[0]))
        return Promise.resolved(None)

    def ask(self, method, *args, **kwargs):
        return self.ref.call(method, *args, **kwargs).get(timeout=WATCHDOG)

    def publish(self, *values, partition=0, key=None):
        batch = prepare(self.topic, [Message(value, key) for value in values], 0)
        promise = self.partitions[partition].call(PartitionActor.append, batch)
        return promise.get(timeout=WATCHDOG)

    def join(self, *names):
        return [self.ask(ConsumerGroupActor.add_consumer, name) for name in names][-1]

    def leave(self, name):
        return self.ask(ConsumerGroupActor.remove_consumer, name)

    def start(self, name, room=100, timeout=None):
        """Begin a poll, and let the actor come to wait for it."""
        promise = self.ref.call(ConsumerGroupActor.poll, name, room, timeout)
        self.settle()
        return promise

    def poll(self, name, room=100):
        return self.ask(ConsumerGroupActor.poll, name, room, 0.0)

    def values(self, name, room=100):
        return [message.value for message in self.poll(name, room)]

    def ack(self, message, *, success=True, error=""):
        return self.ask(ConsumerGroupActor.acknowledge, message, success, error)

    def info(self):
        return self.ask(ConsumerGroupActor.info)

    def settle(self):
        """Let everything that is on its way arrive: there and back, twice."""
        for _ in range(2):
            self.info()


@pytest.fixture
def group(stage, clock):
    return Group(stage, clock)


def taken(promise):
    return [message.value for message in promise.get(timeout=WATCHDOG)]


def crash(_self):
    raise SystemExit


# Members


def test_members_join_and_leave_and_the_answer_is_the_new_assignment(stage, clock):
    group = Group(stage, clock, topic={"num_partitions": 3})
    assert group.join("a") == {"a": [0, 1, 2]}
    assert group.join("b") == {"a": [0, 2], "b": [1]}
    assert group.leave("a") == {"b": [0, 1, 2]}
    assert group.leave("b") == {}
    assert group.info().generation == 4


def test_a_second_member_of_a_name_and_the_leaving_of_nobody_are_errors(group):
    group.join("a")
    with pytest.raises(ConsumerExistsError):
        group.join("a")
    with pytest.raises(UnknownConsumerError):
        group.leave("b")
    assert group.info().generation == 1


@pytest.mark.parametrize("name", ["", "x" * 250, "a\nb", 5, None, b"a"])
def test_what_can_be_no_consumer_id_is_refused_everywhere(group, name):
    for method in ("add_consumer", "remove_consumer", "poll", "commit"):
        with pytest.raises(InvalidArgumentError, match="consumer id"):
            group.ask(getattr(ConsumerGroupActor, method), name)


# Polling


def test_a_poll_takes_what_is_there(group):
    group.join("c")
    group.publish(*range(5))
    assert group.values("c", 3) == [0, 1, 2]
    assert group.values("c") == [3, 4]
    assert group.values("c") == []


def test_a_poll_waits_for_the_next_message(group):
    group.join("c")
    promise = group.start("c", timeout=60.0)
    assert not promise.done()
    group.publish("m")
    assert taken(promise) == ["m"]


def test_a_poll_ends_when_its_time_is_over_and_not_before(group, clock):
    group.join("c")
    promise = group.start("c", timeout=5.0)
    clock.advance(4.999)
    group.settle()
    assert not promise.done()
    clock.advance(0.001)
    assert taken(promise) == []


def test_a_poll_without_a_time_limit_waits_for_ever(group, clock):
    group.join("c")
    promise = group.start("c", timeout=None)
    clock.advance(1e9)
    group.settle()
    assert not promise.done()
    group.publish("m")
    assert taken(promise) == ["m"]


def test_polls_of_one_consumer_are_served_in_their_order(group):
    group.join("c")
    first, second = group.start("c", 1, 60.0), group.start("c", 5, 60.0)
    group.publish("a", "b", "c")
    assert (taken(first), taken(second)) == (["a"], ["b", "c"])


def test_a_short_poll_behind_a_long_one_ends_in_time(group, clock):
    group.join("c")
    long, short = group.start("c", timeout=60.0), group.start("c", timeout=1.0)
    assert taken(group.start("c", timeout=0.0)) == []
    clock.advance(1)
    assert taken(short) == []
    assert not long.done()
    clock.advance(59)
    assert taken(long) == []


def test_polls_of_many_consumers_end_each_in_its_time(stage, clock):
    group = Group(stage, clock, topic={"num_partitions": 4})
    names = [f"c{number}" for number in range(6)]
    group.join(*names)
    promises = [group.start(name, timeout=float(at + 1)) for at, name in enumerate(names)]
    for at, promise in enumerate(promises):
        clock.advance(1)
        assert taken(promise) == []
        group.settle()
        assert [later.done() for later in promises[at + 1 :]] == [False] * (5 - at)


class Detour:
    """A reference whose messages take another way."""

    def __init__(self, ref, deliver):
        self.ref = ref
        self._deliver = deliver

    def deliver(self, message, reply):
        self._deliver(self.ref, message, reply)

    def call(self, method, /, *args, **kwargs):
        reply = Promise()
        self.deliver(Call(method, args, kwargs), reply)
        return reply


def is_fetch(message):
    return getattr(message, "method", None) is PartitionActor.fetch


class SlowFetches(Group):
    """Its fetches arrive when the test lets them."""

    def wrapped(self, partitions):
        self.held = []
        self.holding = False
        return [Detour(ref, self.deliver) for ref in partitions]

    def deliver(self, *way):
        if self.holding and is_fetch(way[1]):
            self.held.append(way)
        else:
            way[0].deliver(*way[1:])

    def let_go(self):
        self.holding = False
        held, self.held = self.held, []
        for way in held:
            self.deliver(*way)


def test_a_poll_ends_in_time_though_that_of_another_is_answered_when_it_should_have_ended(
    stage, clock
):
    """When the timer of the first fires, its fetch is under way: it must not take the second's."""
    group = SlowFetches(stage, clock, topic={"num_partitions": 2})
    group.join("first", "second")
    waiting = group.start("second", timeout=10.0)
    group.holding = True
    served = group.start("first", timeout=5.0)
    assert group.held
    clock.advance(6)
    group.settle()
    group.publish("m")
    group.let_go()
    assert taken(served) == ["m"]
    group.settle()
    clock.advance(6)
    assert taken(waiting) == []


class OvertakenFetches(Group):
    """The partition answers a fetch, and is appended to, before its asker goes on."""

    def wrapped(self, partitions):
        self.overtake = False
        return [Detour(ref, self.deliver) for ref in partitions]

    def deliver(self, ref, message, reply):
        ref.deliver(message, reply)
        if self.overtake and is_fetch(message):
            self.overtake = False
            batch = prepare(self.topic, [Message("overtook")], 0)
            with Crew() as crew:  # another thread runs the partition meanwhile
                crew.start(lambda: ref.call(PartitionActor.append, batch).get(timeout=WATCHDOG))


def test_a_partition_that_is_faster_than_the_group_still_wakes_it(clock, four_threads):
    """With several threads an append may come between a fetch and the group's next step."""
    group = OvertakenFetches(four_threads, clock)
    group.join("c")
    group.publish("first")
    group.overtake = True
    assert group.values("c") == ["first"]
    group.ask(ConsumerGroupActor.seek, 0, END)
    promise = group.start("c", timeout=None)
    group.publish("next")
    assert taken(promise) == ["next"]


def test_a_rebalance_ends_the_wait_of_those_whose_partitions_change(stage, clock):
    group = Group(stage, clock, topic={"num_partitions": 2})
    group.join("a", "b")
    polls = {name: group.start(name, timeout=60.0) for name in "ab"}
    group.join("c")  # has none of the two partitions
    group.settle()
    assert not any(promise.done() for promise in polls.values())
    idle = group.start("c", timeout=60.0)
    group.leave("a")  # b takes 0, c takes 1
    assert [taken(promise) for promise in (polls["a"], polls["b"], idle)] == [[], [], []]


def test_an_idle_consumer_waits_and_takes_over_when_an_owner_leaves(group):
    group.join("a", "idle")
    promise = group.start("idle", timeout=60.0)
    group.publish("m")
    group.settle()
    assert not promise.done()
    group.leave("a")
    first = taken(promise)  # it may be woken with nothing yet
    assert first + group.values("idle") == ["m"]


def test_one_who_leaves_gets_nothing_more(group):
    group.join("a")
    promises = [group.start("a", timeout=None) for _ in range(3)]
    group.leave("a")
    group.publish("m")
    assert [taken(promise) for promise in promises] == [[], [], []]


def test_an_id_that_is_no_member_gets_nothing_and_a_warning_once_a_minute(group, clock, caplog):
    for _ in range(3):
        assert group.poll("nobody") == []
    assert taken(group.ref.call(ConsumerGroupActor.poll, "nobody", 1, 60.0)) == []
    clock.advance(60)
    assert group.poll("nobody") == []
    told = [record for record in caplog.records if record.dmq["event"] == "consumer.unknown"]
    assert [record.dmq["consumer"] for record in told] == ["nobody"] * 2


def test_each_poll_begins_with_another_partition(stage, clock):
    group = Group(stage, clock, topic={"num_partitions": 3})
    group.join("c")
    for partition in range(3):
        group.publish(*range(5), partition=partition)
    first = [group.poll("c", 1)[0].partition for _ in range(6)]
    assert first == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("room", "timeout"), [(0, 0), (-1, 0), (True, 0), ("1", 0), (1, -1), (1, "1"), (1, True)]
)
def test_a_poll_that_makes_no_sense_is_refused(group, room, timeout):
    group.join("c")
    with pytest.raises(InvalidArgumentError):
        group.ask(ConsumerGroupActor.poll, "c", room, timeout)
    assert group.values("c") == []


def test_what_retention_takes_from_an_exacting_group_is_an_error_of_the_poll(stage, clock):
    group = Group(stage, clock, topic={"retention_count": 2}, on_offset_lost="error")
    group.join("c")
    group.publish(*range(5))
    with pytest.raises(OffsetLostError):
        group.poll("c")
    assert group.ask(ConsumerGroupActor.seek, 0, BEGINNING) == 3
    assert group.values("c") == [3, 4]


def test_a_fetch_that_fails_for_whatever_reason_fails_the_poll_and_not_the_next_one(
    stage, clock, caplog
):
    group = SlowFetches(stage, clock)
    group.join("c")
    group.publish("m")
    group.holding = True
    promise = group.start("c", timeout=60.0)
    [(_, _, reply)] = group.held
    group.holding = False
    reply.fail(ZeroDivisionError("a fault of the partition"))
    with pytest.raises((ZeroDivisionError, ActorCrashedError)):
        promise.get(timeout=1.0)
    assert group.values("c") == ["m"]
    assert all(record.dmq["event"] == "actor.failed" for record in caplog.records)


class Moody:
    """A value that refuses to be copied now and then."""

    refuses = False

    def __deepcopy__(self, memo):
        if Moody.refuses:
            raise RuntimeError("not now")
        return Moody()


def test_a_value_that_cannot_be_copied_for_the_reader_takes_no_other_message_with_it(
    group, monkeypatch
):
    group.join("c")
    group.publish("before", Moody(), "after")
    with monkeypatch.context() as patch:
        patch.setattr(Moody, "refuses", True)
        with pytest.raises(InvalidArgumentError, match="not now"):
            group.poll("c")
    group.settle()
    assert [message.offset for message in group.poll("c")] == [0, 1, 2]


# Polls that are given up


def test_a_poll_that_is_abandoned_while_it_waits_takes_nothing(group):
    group.join("c")
    promise = group.start("c", timeout=None)
    promise.abandon()
    group.settle()
    group.publish("m")
    assert group.values("c") == ["m"]


def test_a_poll_that_is_abandoned_after_its_answer_gives_back(group):
    group.join("c")
    group.publish("a", "b")
    promise = group.start("c")
    assert promise.done()
    promise.abandon()
    group.settle()
    again = group.poll("c")
    assert [(message.value, message.delivery_attempt) for message in again] == [("a", 1), ("b", 1)]


def test_a_poll_that_is_abandoned_before_the_actor_heard_of_it_takes_nothing(group):
    group.join("c")
    with HeldActor(group.ref):
        promise = group.ref.call(ConsumerGroupActor.poll, "c", 10, None)
        promise.abandon()
    group.publish("m")
    group.settle()
    assert group.values("c") == ["m"]


def test_what_is_given_back_wakes_one_who_waits(group):
    group.join("c")
    group.publish("m")
    unread = group.start("c")
    waiting = group.start("c", timeout=None)
    unread.abandon()
    assert taken(waiting) == ["m"]


# Completing


def test_acks_out_of_order_jump_no_gap(group):
    group.join("c")
    group.publish(*range(3))
    first, second, third = group.poll("c")
    assert group.ack(third) is group.ack(second) is AckResult.COMPLETED
    assert group.info().partitions[0].committed_offset == 0
    assert group.ack(first) is AckResult.COMPLETED
    assert group.info().partitions[0].committed_offset == 3
    assert group.ack(first) is AckResult.STALE


def test_commit_completes_what_was_delivered(group):
    group.join("c")
    group.publish(*range(5))
    group.poll("c", 3)
    assert group.ask(ConsumerGroupActor.commit, "c") == {0: 3}
    group.poll("c", 2)
    assert group.ask(ConsumerGroupActor.commit, "c", {0: 4}) == {0: 4}
    assert group.ask(ConsumerGroupActor.lag) == {0: 1}


@pytest.mark.parametrize(
    ("consumer", "offsets", "error"),
    [
        ("nobody", None, UnknownConsumerError),
        ("b", {0: 1}, StaleAssignmentError),
        ("a", {0: 3}, InvalidOffsetError),
        ("a", {9: 1}, UnknownPartitionError),
        ("a", {"0": 1}, InvalidTypeError),
        ("a", [0], InvalidTypeError),
        ("a", {0: -1}, InvalidArgumentError),
    ],
)
def test_a_commit_that_cannot_be_changes_nothing(stage, clock, consumer, offsets, error):
    group = Group(stage, clock, topic={"num_partitions": 2})
    group.join("a", "b")
    group.publish("m", "n")
    group.poll("a")
    with pytest.raises(error):
        group.ask(ConsumerGroupActor.commit, consumer, offsets)
    assert group.info().partitions[0].committed_offset == 0


@pytest.mark.parametrize("message", [None, "text", Message("m")])
def test_what_no_poll_returned_cannot_be_acknowledged(group, message):
    with pytest.raises(InvalidTypeError, match="poll"):
        group.ack(message)


def test_a_nack_is_delivered_again_when_its_backoff_is_over(stage, clock):
    group = Group(stage, clock, retry_backoff=2.0, max_failures=4)
    group.join("c")
    group.publish("m")
    for attempt, backoff in ((1, 2.0), (2, 4.0), (3, 8.0)):
        [message] = group.poll("c")
        assert message.delivery_attempt == attempt
        assert group.ack(message, success=False) is AckResult.RETRYING
        waiting = group.start("c", timeout=None)
        clock.advance(backoff - 0.001)
        group.settle()
        assert not waiting.done()
        waiting.abandon()
        group.settle()
        clock.advance(0.001)
    assert group.poll("c")[0].delivery_attempt == 4


def test_a_retry_that_becomes_due_wakes_one_who_waits(stage, clock):
    group = Group(stage, clock, retry_backoff=2.0)
    group.join("c")
    group.publish("m")
    [message] = group.poll("c")
    group.ack(message, success=False)
    waiting = group.start("c", timeout=60.0)
    clock.advance(2.0)
    assert taken(waiting) == ["m"]


# Dead letters


def test_a_message_that_failed_too_often_is_stored_and_completed(stage, clock):
    group = Group(stage, clock, max_failures=2)
    group.join("c")
    group.publish("bad")
    assert group.ack(group.poll("c")[0], success=False, error="first") is AckResult.RETRYING
    assert group.ack(group.poll("c")[0], success=False, error="last") is AckResult.DEAD_LETTERED
    [(partition, letter)] = group.letters
    assert (partition, letter.value, letter.headers["dmq-last-error"]) == (0, "bad", "last")
    info = group.info()
    assert (info.lag, info.in_flight, info.dead_lettered_total) == (0, 0, 1)


def test_a_dead_letter_that_cannot_be_stored_leaves_the_message_pending(stage, clock, caplog):
    group = Group(stage, clock, max_failures=1)
    group.join("c")
    group.publish("bad")
    failed = Promise()
    failed.fail(DMQError("no room"))
    group.store = lambda *_: failed
    assert group.ack(group.poll("c")[0], success=False) is AckResult.RETRYING
    assert group.info().lag == 1
    assert "dead_letter.failed" in [record.dmq["event"] for record in caplog.records]
    group.store = group._store
    clock.advance(1.0)
    assert group.ack(group.poll("c")[0], success=False) is AckResult.DEAD_LETTERED
    assert len(group.letters) == 1
    assert group.info().lag == 0


def test_a_message_that_retention_took_meanwhile_is_buried_all_the_same(stage, clock):
    group = Group(stage, clock, topic={"retention_count": 1}, max_failures=1)
    group.join("c")
    group.publish("bad")
    [message] = group.poll("c")
    group.publish("newer")
    group.ack(message, success=False)
    assert [letter.value for _, letter in group.letters] == ["bad"]
    assert group.values("c") == ["newer"]


def test_a_group_that_is_stopped_from_outside_while_it_buries_stores_one_letter(stage, clock):
    group = Group(stage, clock, max_failures=1)
    group.join("c")
    group.publish("bad")
    storing, stored = threading.Event(), Promise()

    def store(*letter):
        group.letters.append(letter)
        storing.set()
        return stored

    group.store = store
    [message] = group.poll("c")
    buried = group.ref.call(ConsumerGroupActor.acknowledge, message, success=False)
    assert storing.wait(WATCHDOG)
    assert group.ref.stop(timeout=WATCHDOG) is True
    group.settle()
    stored.resolve()
    assert buried.get(timeout=WATCHDOG) is AckResult.DEAD_LETTERED
    group.settle()
    assert len(group.letters) == 1


def test_a_message_that_is_committed_while_it_is_buried_can_be_replayed(stage, clock):
    group = Group(stage, clock, max_failures=1)
    group.join("c")
    group.publish("bad", "good")
    storing, stored = threading.Event(), Promise()

    def store(*_):
        storing.set()
        return stored

    group.store = store
    message, _ = group.poll("c")
    buried = group.ref.call(ConsumerGroupActor.acknowledge, message, success=False)
    assert storing.wait(WATCHDOG)
    group.ask(ConsumerGroupActor.commit, "c", {0: 2})
    stored.resolve()
    assert buried.get(timeout=WATCHDOG) in {AckResult.DEAD_LETTERED, AckResult.COMPLETED}
    group.ask(ConsumerGroupActor.seek, 0, BEGINNING)
    assert group.values("c") == ["bad", "good"]


# Seeking


def test_a_seek_moves_the_group_and_answers_where_to(group):
    group.join("c")
    group.publish(*range(5))
    group.poll("c")
    assert group.ask(ConsumerGroupActor.seek, 0, BEGINNING) == 0
    assert group.values("c", 2) == [0, 1]
    assert group.ask(ConsumerGroupActor.seek, 0, 3) == 3
    assert group.values("c") == [3, 4]
    assert group.ask(ConsumerGroupActor.seek, 0, END) == 5
    assert group.values("c") == []


def test_a_seek_wakes_one_who_waits(group):
    group.join("c")
    group.publish("m")
    group.poll("c")
    promise = group.start("c", timeout=None)
    group.ask(ConsumerGroupActor.seek, 0, 0)
    assert taken(promise) == ["m"]


@pytest.mark.parametrize(
    ("partition", "offset", "error"),
    [
        (0, 9, InvalidOffsetError),
        (0, -3, InvalidArgumentError),
        (5, 0, UnknownPartitionError),
        (-1, 0, InvalidArgumentError),
        (0, "0", InvalidTypeError),
        (0, True, InvalidTypeError),
    ],
)
def test_a_seek_to_nowhere_changes_nothing(group, partition, offset, error):
    group.join("c")
    group.publish("m")
    with pytest.raises(error):
        group.ask(ConsumerGroupActor.seek, partition, offset)
    assert group.values("c") == ["m"]


# Life


def test_everybody_who_waits_hears_why_a_group_ends(stage, clock):
    group = SlowFetches(stage, clock, max_failures=1)
    group.join("c")
    group.publish("bad")
    never = Promise()
    storing = threading.Event()
    group.store = lambda *_: (storing.set(), never)[1]
    [message] = group.poll("c")
    waiting = [group.ref.call(ConsumerGroupActor.acknowledge, message, success=False)]
    assert storing.wait(WATCHDOG)
    waiting += [group.start("c", timeout=None) for _ in range(2)]
    hold = HeldActor(group.partitions[0])  # so that no answer comes in time
    waiting += [
        group.ref.call(ConsumerGroupActor.info),
        group.ref.call(ConsumerGroupActor.lag),
        group.ref.call(ConsumerGroupActor.seek, 0, 0),
    ]
    stopped = stage.end(group.ref, lambda: UnknownGroupError("deleted"))
    waiting.append(group.ref.call(ConsumerGroupActor.info))
    assert stopped.get(timeout=WATCHDOG) == 1  # in flight
    hold.release()
    for promise in waiting:
        with pytest.raises(UnknownGroupError, match="deleted"):
            promise.get(timeout=WATCHDOG)


def test_questions_to_a_partition_that_has_ended_tell_its_reason(group):
    group.join("c")
    group.stage.end(group.partitions[0], lambda: BrokerClosedError("gone")).get(timeout=WATCHDOG)
    for method, args in (("info", ()), ("lag", ()), ("seek", (0, 0)), ("poll", ("c", 1, None))):
        with pytest.raises(BrokerClosedError, match="gone"):
            group.ask(getattr(ConsumerGroupActor, method), *args)


def test_a_group_that_crashes_goes_on_with_its_members_and_offsets(group):
    group.join("c")
    group.publish(*range(4))
    first, _ = group.poll("c", 2)
    waiting = group.start("c", 1, None)
    assert taken(waiting) == [2]
    longer = [group.start("c", 1, None), group.start("c", 1, None)]
    with pytest.raises(ActorCrashedError):
        group.ask(crash)
    assert taken(longer[0]) == [3]
    assert group.ack(first) is AckResult.COMPLETED
    group.publish("after")
    assert taken(longer[1]) == ["after"]
    info = group.info()
    assert (info.restarts, info.members, info.generation) == (1, ("c",), 1)


def test_a_group_whose_fetch_was_lost_in_a_crash_asks_again(stage, clock):
    group = SlowFetches(stage, clock)
    group.join("c")
    group.publish("m")
    group.holding = True
    promise = group.start("c", timeout=None)
    assert group.held
    group.held.clear()
    group.holding = False
    with pytest.raises(ActorCrashedError):
        group.ask(crash)
    assert taken(promise) == ["m"]


def test_an_answer_that_comes_after_a_crash_doubles_nothing(stage, clock):
    group = SlowFetches(stage, clock)
    group.join("c")
    group.publish("m")
    group.holding = True
    promise = group.start("c", timeout=None)
    held, group.held = group.held, []
    group.holding = False
    with pytest.raises(ActorCrashedError):
        group.ask(crash)
    assert taken(promise) == ["m"]
    group.held = held
    second = group.start("c", timeout=None)
    group.let_go()
    group.settle()
    assert not second.done()
    second.abandon()


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])
def test_publishers_pollers_and_a_saboteur_lose_nothing(stage, clock, delivery):
    group = Group(stage, clock, delivery, topic={"num_partitions": 2})
    group.join("c")
    got, done = [], threading.Event()

    def publish(partition):
        for number in range(50):
            group.publish((partition, number), partition=partition)

    def poll():
        while len(got) < 100:
            got.extend(group.ref.call(ConsumerGroupActor.poll, "c", 7, None).get(timeout=WATCHDOG))
        done.set()

    def stop():
        while not done.is_set():
            group.ref.stop(timeout=WATCHDOG)

    with Crew() as crew:
        crew.start(poll)
        crew.start(stop)
        for partition in range(2):
            crew.start(publish, partition)
    assert sorted(message.value for message in got) == [(p, n) for p in range(2) for n in range(50)]
    for partition in range(2):
        own = [message.offset for message in got if message.partition == partition]
        assert own == list(range(50))
