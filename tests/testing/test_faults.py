"""`Faults`: each kind of fault, which messages it hits, and that the broker goes on."""

from __future__ import annotations

import pytest
from support import WATCHDOG

from dmq_actors import (
    AckResult,
    ActorCrashedError,
    BrokerTimeoutError,
    DMQError,
    InvalidArgumentError,
    InvalidTypeError,
    Message,
    MessageQueue,
    UnknownConsumerError,
    UnknownTopicError,
)
from dmq_actors.testing import Faults, expire_member, force_rebalance


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def faulty(message_queue_factory, faults, clock):
    mq = message_queue_factory(faults=faults, clock=clock, call_timeout=10.0)
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    return mq


def values(messages):
    return [message.value for message in messages]


def log_of(mq):
    return values(mq.partition_actor("t", 0).read(0).get(timeout=WATCHDOG))


def test_without_faults_no_mailbox_filters(mq):
    assert type(mq.coordinator.actor_ref._mailbox).__name__ == "Mailbox"


# Fail


def test_a_call_fails_with_the_error_given_and_then_works(faulty, faults):
    rule = faults.fail("partition-t-0", "append_one", error=OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        faulty.publish("t", Message(1))
    faulty.publish("t", Message(2))
    assert (log_of(faulty), rule.hits) == ([2], 1)
    assert faulty.take_actor_failures() == []  # the caller was told


def test_a_failure_that_no_caller_hears_of_is_noted(faulty, faults):
    faults.fail("group-g", "commit", error=RuntimeError("odd"))
    faulty.group_actor("g").commit.defer("c")
    faulty.get_group_info("g")
    [failure] = faulty.take_actor_failures()
    assert (failure.actor, failure.error) == ("group-g", "RuntimeError('odd')")
    assert "commit" in failure.message
    assert "commit" in str(failure)
    assert "raise error" in failure.traceback
    assert faulty.take_actor_failures() == []
    assert faulty.close().actor_failures == ()


def test_the_report_of_close_tells_the_failures_that_nobody_took():
    faults = Faults()
    faults.fail("coordinator", "list_topics", error=RuntimeError("odd"))
    with MessageQueue(faults=faults) as mq:
        mq.coordinator.list_topics.defer()
        mq.create_topic("t")
    assert [failure.actor for failure in mq.close().actor_failures] == ["coordinator"]
    assert len(mq.take_actor_failures()) == 1


def test_a_dead_letter_that_cannot_be_stored_leaves_the_message_pending(faulty, faults, clock):
    faulty.create_consumer_group("h", "t", max_failures=1)
    faulty.add_consumer("h", "c")
    faulty.publish("t", Message("m"))
    faults.fail("coordinator", "store_dead_letter", error=UnknownTopicError("gone"))
    [message] = faulty.poll("h", "c")
    assert faulty.acknowledge("h", message, success=False) is AckResult.RETRYING
    clock.advance(3_600)
    [again] = faulty.poll("h", "c")
    assert faulty.acknowledge("h", again, success=False) is AckResult.DEAD_LETTERED


# Which messages


def test_after_and_times_choose_the_messages(faulty, faults):
    rule = faults.fail("partition-*", "append_one", error=OSError("e"), times=2, after=1)
    outcomes = []
    for number in range(5):
        try:
            faulty.publish("t", Message(number))
        except OSError:
            outcomes.append(False)
        else:
            outcomes.append(True)
    assert outcomes == [True, False, False, True, True]
    assert rule.hits == 2


def test_a_rule_without_end_hits_until_it_is_cancelled(faulty, faults):
    rule = faults.fail("coordinator", "publish*", error=OSError("e"), times=None)
    for _ in range(3):
        with pytest.raises(OSError, match="e"):
            faulty.publish("t", Message(1))
    rule.cancel()
    faulty.publish("t", Message(2))
    assert rule.hits == 3


def test_cancel_all_ends_all_rules(faulty, faults):
    faults.fail("*", "*", error=OSError("e"), times=None)
    with pytest.raises(OSError, match="e"):
        faulty.publish("t", Message(1))
    faults.cancel_all()
    faulty.publish("t", Message(2))


def test_the_first_rule_that_fits_decides(faulty, faults):
    first = faults.fail("coordinator", "publish", error=OSError("first"))
    second = faults.fail("coordinator", "publish", error=OSError("second"))
    for expected in ("first", "second"):
        with pytest.raises(OSError, match=expected):
            faulty.publish("t", Message(1))
    assert (first.hits, second.hits) == (1, 1)


def test_calls_through_pykkas_proxies_are_hit_as_well(faulty, faults):
    faults.fail("group-g", "lag", error=OSError("e"))
    with pytest.raises(OSError, match="e"):
        faulty.group_actor("g").lag().get(timeout=WATCHDOG)


def test_messages_of_an_actor_to_itself_are_hit_only_by_name(faulty, faults):
    every = faults.kill("group-g", "*", times=None, after=1_000)
    named = faults.kill("group-g", "_fetched")
    faulty.publish("t", Message("m"))
    assert values(faulty.poll("g", "c", timeout=5.0)) == ["m"]  # the restart asks again
    assert named.hits == 1
    assert every.hits == 0
    [failure] = faulty.take_actor_failures()  # nobody waited for that message itself
    assert "killed by Faults" in failure.traceback


# Kill


def test_a_killed_actor_goes_on_with_its_state_and_its_caller_hears_of_it(faulty, faults):
    faulty.publish("t", Message(1))
    faults.kill("partition-t-0", "append_one")
    with pytest.raises(ActorCrashedError):
        faulty.publish("t", Message("lost"))
    faulty.publish("t", Message(2))
    assert log_of(faulty) == [1, 2]
    assert faulty.get_topic_info("t").partitions[0].restarts == 1
    assert faulty.take_actor_failures() == []


# Drop


def test_the_caller_of_a_dropped_message_waits_for_its_time_out(faulty, faults):
    faults.drop("partition-t-0", "append_one")
    with pytest.raises(BrokerTimeoutError):
        faulty.publish("t", Message("lost"), timeout=0.01)
    faulty.publish("t", Message("m"))
    assert log_of(faulty) == ["m"]


def test_the_caller_of_a_dropped_message_learns_that_its_topic_is_gone(faulty, faults):
    faults.drop("partition-t-0", "append_one")
    lost = faulty.coordinator.publish("t", Message("lost"))
    faulty.delete_topic("t")
    with pytest.raises(UnknownTopicError):
        lost.get(timeout=WATCHDOG)


def test_a_dropped_fetch_is_made_good_by_a_restart_of_the_group(faulty, faults):
    faulty.publish("t", Message("m"))
    dropped = faults.drop("partition-t-0", "fetch")
    polled = faulty.group_actor("g").poll("c", 10, timeout=60.0)
    faulty.get_group_info("g")
    assert (dropped.hits, polled.done()) == (1, False)
    faults.kill("group-g", "lag")
    with pytest.raises(ActorCrashedError):
        faulty.get_consumer_lag("g")
    assert values(polled.get(timeout=WATCHDOG)) == ["m"]


# Delay


def test_a_delayed_message_comes_later_and_is_overtaken(faulty, faults, clock):
    faults.delay("partition-t-0", "append_one", seconds=5.0)
    late = faulty.coordinator.publish("t", Message("late"))
    faulty.publish("t", Message("early"))
    clock.advance(4.9)
    assert log_of(faulty) == ["early"]
    clock.advance(0.2)
    assert late.get(timeout=WATCHDOG).offset == 1
    assert log_of(faulty) == ["early", "late"]


def test_the_caller_of_a_delayed_message_learns_that_the_broker_is_closed(faulty, faults, clock):
    faults.delay("partition-t-0", "append_one", seconds=5.0)
    late = faulty.coordinator.publish("t", Message("late"))
    log_of(faulty)
    assert faulty.close().clean
    with pytest.raises(DMQError, match="closed"):
        late.get(timeout=WATCHDOG)
    clock.advance(10.0)  # and the timer does no harm


# Duplicate


def test_a_duplicated_append_is_stored_twice_and_answered_once(faulty, faults):
    faults.duplicate("partition-t-0", "append_one")
    assert faulty.publish("t", Message("m")).offset == 0
    assert log_of(faulty) == ["m", "m"]


def test_a_duplicated_join_fails_for_nobody(faulty, faults):
    faults.duplicate("group-g", "add_consumer")
    assert faulty.add_consumer("g", "d") == {"c": [0], "d": []}
    assert faulty.get_group_info("g").members == ("c", "d")
    assert faulty.take_actor_failures() == []


def test_a_duplicated_poll_takes_no_message_away(faulty, faults):
    faulty.publish_many("t", [Message(n) for n in range(4)])
    faults.duplicate("group-g", "poll")
    seen = values(faulty.poll("g", "c", 2))
    seen += values(faulty.poll("g", "c", 10, timeout=1.0))
    assert sorted(seen) == [0, 1, 2, 3]


# Members


def test_an_expired_member_loses_its_messages_to_the_others(faulty):
    faulty.add_consumer("g", "d")
    faulty.publish("t", Message("m"))
    [message] = faulty.poll("g", "c")
    assert expire_member(faulty, "g", "c") == {"d": [0]}
    assert faulty.acknowledge("g", message) is AckResult.STALE
    assert values(faulty.poll("g", "d")) == ["m"]
    with pytest.raises(UnknownConsumerError):
        expire_member(faulty, "g", "c")


def test_a_forced_rebalance_keeps_the_members_and_delivers_again(faulty):
    faulty.publish("t", Message("m"))
    [before] = faulty.poll("g", "c")
    generation = faulty.get_group_info("g").generation
    polled = faulty.group_actor("g").poll("c", 10, timeout=60.0)
    assert force_rebalance(faulty, "g") == {"c": [0]}
    assert faulty.get_group_info("g").generation == generation + 1
    [after] = polled.get(timeout=WATCHDOG)
    assert faulty.acknowledge("g", before) is AckResult.STALE
    assert faulty.acknowledge("g", after) is AckResult.COMPLETED


def test_a_group_without_members_can_be_rebalanced(faulty):
    faulty.remove_consumer("g", "c")
    assert force_rebalance(faulty, "g") == {}


# Bad input


@pytest.mark.parametrize(
    ("method", "arguments", "kind"),
    [
        ("drop", {"actor": 7, "message": "poll"}, InvalidTypeError),
        ("drop", {"actor": "*", "message": None}, InvalidTypeError),
        ("drop", {"actor": "*", "message": "*", "times": 0}, InvalidArgumentError),
        ("drop", {"actor": "*", "message": "*", "times": "1"}, InvalidTypeError),
        ("kill", {"actor": "*", "after": -1}, InvalidArgumentError),
        ("delay", {"actor": "*", "message": "*", "seconds": -1}, InvalidArgumentError),
        ("delay", {"actor": "*", "message": "*", "seconds": "1"}, InvalidTypeError),
        ("fail", {"actor": "*", "message": "*", "error": "e"}, InvalidTypeError),
        ("fail", {"actor": "*", "message": "*", "error": SystemExit()}, InvalidTypeError),
    ],
)
def test_a_rule_that_cannot_be_right_is_refused(faults, method, arguments, kind):
    with pytest.raises(kind):
        getattr(faults, method)(**arguments)
