"""`Consumer`: membership, reading, completing, listeners, and what it refuses."""

from __future__ import annotations

import gc
import threading

import pytest
from support import WATCHDOG, Crew, all_at_once

from dmq_actors import (
    AckResult,
    BrokerClosedError,
    ConcurrentUseError,
    ConsumerClosedError,
    ConsumerExistsError,
    ConsumerExpelledError,
    InvalidOffsetError,
    Message,
    MessageQueue,
    StaleAssignmentError,
    UnknownGroupError,
    UnknownPartitionError,
)


def fill(mq, count, *, partitions=1, group="g", **options):
    mq.create_topic("t", num_partitions=partitions)
    mq.create_consumer_group(group, "t", **options)
    for number in range(count):
        mq.publish("t", Message(number), partition=number % partitions)


def values(messages):
    return [message.value for message in messages]


# Membership


def test_it_joins_when_made_and_leaves_when_closed(mq):
    fill(mq, 0, partitions=2)
    with mq.consumer("g", consumer_id="a") as a:
        assert (a.group_id, a.topic, a.consumer_id, a.assignment) == ("g", "t", "a", [0, 1])
        assert a.generation == 1
        with mq.consumer("g") as b:
            assert len(b.assignment) == 1
            assert sorted(a.assignment + b.assignment) == [0, 1]
            assert mq.get_group_info("g").members == ("a", b.consumer_id)
        assert a.assignment == [0, 1]
    assert mq.get_group_info("g").members == ()
    assert a.assignment == []


def test_an_id_in_use_is_refused_and_the_first_one_goes_on(mq):
    fill(mq, 1)
    with mq.consumer("g", consumer_id="a") as first:
        with pytest.raises(ConsumerExistsError):
            mq.consumer("g", consumer_id="a")
        gc.collect()
        assert values(first.poll()) == [0]
    with mq.consumer("g", consumer_id="a") as second:
        assert values(second.poll()) == [0]


def test_close_may_be_called_again_and_by_several_threads_at_once(mq):
    fill(mq, 0)
    consumer = mq.consumer("g")
    assert all_at_once([consumer.close] * 4) == [None] * 4
    consumer.close()
    assert mq.get_group_info("g").members == ()
    for call in (consumer.poll, consumer.commit, consumer.lag, lambda: consumer.seek(0, 0)):
        with pytest.raises(ConsumerClosedError):
            call()
    assert list(consumer) == []


def test_close_is_harmless_after_the_group_and_after_the_broker(mq):
    fill(mq, 0)
    consumer = mq.consumer("g")
    mq.delete_consumer_group("g")
    with pytest.raises(UnknownGroupError):
        consumer.poll()
    consumer.close()
    mq.create_consumer_group("g", "t")
    other = mq.consumer("g")
    mq.close()
    with pytest.raises(BrokerClosedError):
        other.poll()
    assert list(other) == []
    other.close()


def test_an_unknown_group_or_a_closed_broker_makes_no_consumer(mq):
    with pytest.raises(UnknownGroupError):
        mq.consumer("g")
    mq.close()
    with pytest.raises(BrokerClosedError):
        mq.consumer("g")


# Reading


def test_poll_takes_max_poll_if_not_told_otherwise(mq):
    fill(mq, 10)
    with mq.consumer("g", max_poll=4) as consumer:
        assert values(consumer.poll()) == [0, 1, 2, 3]
        assert values(consumer.poll(5)) == [4, 5, 6, 7, 8]
        assert values(consumer.poll()) == [9]
        assert consumer.poll() == []


def test_a_waiting_poll_gets_what_is_published(mq):
    fill(mq, 0)
    got = []
    with Crew() as crew, mq.consumer("g") as consumer:
        crew.start(lambda: got.extend(consumer.poll(timeout=WATCHDOG)))
        mq.publish("t", Message("x"))
        crew.join()
    assert values(got) == ["x"]


def test_polls_with_a_timeout_end_on_the_brokers_clock(manual_mq, clock):
    fill(manual_mq, 0)
    with manual_mq.consumer("g") as consumer, Crew() as crew:
        polled = []
        crew.start(lambda: polled.append(consumer.poll(timeout=5.0)))
        while not polled:
            clock.advance(1.0)
        assert polled == [[]]


def test_iteration_goes_on_until_it_is_woken(mq):
    fill(mq, 5)
    seen = []
    with mq.consumer("g", max_poll=2) as consumer:
        for message in consumer:
            seen.append(message.value)
            consumer.ack(message)
            if len(seen) == 5:
                consumer.wakeup()
        assert seen == [0, 1, 2, 3, 4]
        assert consumer.lag() == {0: 0}


def test_commit_leaves_out_what_iteration_has_not_yielded(mq):
    fill(mq, 5)
    with mq.consumer("g") as consumer:
        for message in consumer:
            if message.value == 2:
                break
        assert consumer.commit() == {0: 3}
        assert consumer.position(0) == 3
        assert consumer.committed(0) == 3
        assert values(consumer.poll()) == [3, 4]
        assert consumer.commit() == {0: 5}


def test_what_iteration_had_in_store_comes_to_the_next_as_a_first_attempt(mq):
    fill(mq, 5)
    with mq.consumer("g") as consumer:
        assert next(iter(consumer)).value == 0
    with mq.consumer("g") as consumer:
        assert [(m.value, m.delivery_attempt) for m in consumer.poll()] == [
            (0, 2), (1, 1), (2, 1), (3, 1), (4, 1),
        ]  # fmt: skip


def test_an_at_most_once_store_is_given_back_too(mq):
    fill(mq, 5, delivery="at_most_once")
    with mq.consumer("g") as consumer:
        assert next(iter(consumer)).value == 0
    with mq.consumer("g") as consumer:
        assert values(consumer.poll()) == [1, 2, 3, 4]


def test_wakeup_ends_the_poll_that_waits_or_else_the_next_one(mq):
    fill(mq, 1)
    with mq.consumer("g") as consumer:
        consumer.wakeup()
        consumer.wakeup()
        assert consumer.poll(timeout=None) == []
        assert values(consumer.poll(timeout=None)) == [0]
        polled = []
        with Crew() as crew:
            crew.start(lambda: polled.append(consumer.poll(timeout=None)))
            consumer.wakeup()
        assert polled == [[]]


def test_close_ends_a_poll_in_another_thread(mq):
    fill(mq, 0)
    revoked = []
    consumer = mq.consumer("g", on_revoked=revoked.append)
    consumer.poll()
    outcome = []
    with Crew() as crew:

        def poll():
            with pytest.raises(ConsumerClosedError):
                consumer.poll(timeout=None)
            outcome.append("closed")

        crew.start(poll)
        consumer.close()
    assert outcome == ["closed"]
    assert revoked == [[0]]


def test_a_second_thread_inside_gets_a_clear_error(mq):
    fill(mq, 0)
    inside, go_on = threading.Event(), threading.Event()

    def listen(_partitions):
        inside.set()
        assert go_on.wait(WATCHDOG)

    consumer = mq.consumer("g", on_assigned=listen)
    done = threading.Event()
    with Crew() as crew:

        def poll_and_stay():
            with pytest.raises(ConsumerClosedError):
                consumer.poll()
            assert done.wait(WATCHDOG)

        crew.start(poll_and_stay)
        assert inside.wait(WATCHDOG)
        for call in (
            consumer.poll,
            consumer.commit,
            consumer.lag,
            lambda: next(iter(consumer)),
            lambda: consumer.pause(0),
            lambda: consumer.resume(0),
            lambda: consumer.seek(0, 0),
            lambda: consumer.seek_to_end(),
            lambda: consumer.position(0),
        ):
            with pytest.raises(ConcurrentUseError, match="crew-0"):
                call()
        consumer.wakeup()
        consumer.close()
        go_on.set()
        done.set()


# Completing


def test_ack_nack_and_give_back(mq):
    fill(mq, 4, max_failures=2)
    with mq.consumer("g") as consumer:
        first, second, third, fourth = consumer.poll()
        assert consumer.ack(first) is AckResult.COMPLETED
        assert consumer.ack(first) is AckResult.STALE
        assert consumer.nack(second, error=ValueError("no")) is AckResult.RETRYING
        consumer.give_back([third])
        again = consumer.poll()
        assert [(m.value, m.delivery_attempt) for m in again] == [(1, 2), (2, 1)]
        assert consumer.nack(again[0], error=ValueError("no")) is AckResult.DEAD_LETTERED
        assert consumer.ack_many([again[1], fourth, fourth]) == [
            AckResult.COMPLETED, AckResult.COMPLETED, AckResult.STALE,
        ]  # fmt: skip
        assert consumer.lag() == {0: 0}


def test_messages_of_another_group_are_stale_and_harmless(mq):
    fill(mq, 3)
    mq.create_topic("u", num_partitions=5)
    mq.create_consumer_group("h", "u")
    mq.publish("u", Message("x"), partition=4)
    with mq.consumer("g") as consumer, mq.consumer("h") as other:
        foreign = other.poll()
        assert consumer.ack_many(foreign) == [AckResult.STALE]
        consumer.give_back(foreign)
        assert values(consumer.poll()) == [0, 1, 2]
        assert other.ack(foreign[0]) is AckResult.COMPLETED


def test_commit_with_offsets(mq):
    fill(mq, 4, partitions=2)
    with mq.consumer("g") as consumer:
        consumer.poll()
        assert consumer.commit({0: 1}) == {0: 1}
        with pytest.raises(InvalidOffsetError):
            consumer.commit({0: 99})
        with pytest.raises(UnknownPartitionError):
            consumer.commit({7: 1})
        assert consumer.commit() == {0: 2, 1: 2}


def test_a_commit_of_what_went_to_others_is_refused_and_the_rest_is_committed(mq):
    fill(mq, 4, partitions=2)
    with mq.consumer("g", consumer_id="a") as a:
        assert len(a.poll()) == 4
        with mq.consumer("g", consumer_id="b") as b:
            kept, lost = a.assignment[0], b.assignment[0]
            with pytest.raises(StaleAssignmentError, match=rf"\[{lost}\]"):
                a.commit()
            with pytest.raises(StaleAssignmentError):
                a.commit({lost: 2})
            assert a.commit({kept: 2}) == {kept: 2}
            assert [(m.partition, m.delivery_attempt) for m in b.poll()] == [(lost, 2), (lost, 2)]
            b.commit()
            assert a.poll() == []
            assert a.commit() == {kept: 2}
        assert sum(a.lag().values()) == 0


def test_a_partition_that_was_lost_and_came_back_is_lost(mq):
    fill(mq, 4, partitions=2)
    with mq.consumer("g") as a:
        messages = a.poll()
        with mq.consumer("g") as b:
            (moved,) = b.assignment
        assert a.assignment == [0, 1]
        with pytest.raises(StaleAssignmentError, match=rf"\[{moved}\]"):
            a.commit()
        results = {m.partition: a.ack(m) for m in messages}
        assert results[moved] is AckResult.STALE
        assert [(m.partition, m.delivery_attempt) for m in a.poll()] == [(moved, 2)] * 2
        a.commit()
        assert a.lag() == {0: 0, 1: 0}


def test_what_a_rebalance_took_while_the_answer_was_on_its_way_is_not_returned(mq):
    """The answer is made by the group, and read later by the thread that polls."""
    fill(mq, 4, partitions=2)
    with mq.consumer("g") as a:
        steps = a._reader.poll(None, 0.0)
        for wanted, _ in iter(lambda: next(steps), None):
            messages = wanted.get(timeout=WATCHDOG)
            if messages:
                break
        with mq.consumer("g") as b:
            with pytest.raises(StopIteration) as done:
                steps.send(messages)
            assert {m.partition for m in done.value.value} == set(a.assignment)
            assert {m.partition for m in b.poll()} == set(b.assignment)


# Pause and seek


def test_a_paused_partition_is_left_out_until_it_is_resumed(mq):
    fill(mq, 4, partitions=2)
    with mq.consumer("g") as consumer:
        consumer.pause(0)
        assert consumer.paused == [0]
        assert values(consumer.poll()) == [1, 3]
        assert consumer.poll() == []
        consumer.resume()
        assert consumer.paused == []
        assert values(consumer.poll()) == [0, 2]
        with pytest.raises(UnknownPartitionError):
            consumer.pause(5)


def test_pausing_gives_back_what_iteration_had_in_store(mq):
    fill(mq, 6, partitions=2)
    with mq.consumer("g") as consumer:
        first = next(iter(consumer))
        consumer.pause(first.partition)
        others = consumer.poll()
        assert {m.partition for m in others} == {1 - first.partition}
        consumer.resume(first.partition)
        rest = consumer.poll()
        assert [m.delivery_attempt for m in rest] == [1, 1]
        assert len(others) + len(rest) == 5


def test_seeks(manual_mq, clock):
    mq = manual_mq
    mq.create_topic("t", num_partitions=2)
    mq.create_consumer_group("g", "t")
    for number in range(6):
        mq.publish("t", Message(number), partition=number % 2)
        clock.advance(10.0)
    with mq.consumer("g") as consumer:
        consumer.poll()
        assert consumer.seek(0, 1) == 1
        assert values(consumer.poll()) == [2, 4]
        assert consumer.seek_to_beginning() == {0: 0, 1: 0}
        assert sorted(values(consumer.poll())) == [0, 1, 2, 3, 4, 5]
        assert consumer.seek_to_end(1) == {1: 3}
        assert consumer.seek_to_timestamp(1_700_000_000.0 + 15.0) == {0: 1, 1: 1}
        assert sorted(values(consumer.poll())) == [2, 3, 4, 5]
        assert consumer.seek_to_timestamp(1_800_000_000.0, 0) == {0: 3}
        with pytest.raises(InvalidOffsetError):
            consumer.seek(0, 99)
        with pytest.raises(UnknownPartitionError):
            consumer.seek(9, 0)
        with pytest.raises(UnknownPartitionError):
            consumer.seek_to_timestamp(0.0, 9)


def test_a_seek_drops_what_iteration_had_in_store(mq):
    fill(mq, 6)
    with mq.consumer("g") as consumer:
        for message in consumer:
            if message.value == 1:
                consumer.seek(0, 4)
            if message.value == 5:
                break
            assert message.value in (0, 1, 4)
        assert consumer.commit() == {0: 6}


def test_nothing_is_moved_in_a_partition_of_another(mq):
    fill(mq, 4, partitions=2)
    with mq.consumer("g", consumer_id="a") as a, mq.consumer("g", consumer_id="b") as b:
        (other,) = b.assignment
        for call in (
            lambda: a.seek(other, 0),
            lambda: a.seek_to_timestamp(0.0, other),
            lambda: a.position(other),
            lambda: a.committed(other),
            lambda: a.pause(other),
        ):
            with pytest.raises(StaleAssignmentError):
                call()


# Listeners


def test_listeners_hear_of_everything_in_the_thread_that_polls(mq):
    fill(mq, 4, partitions=2)
    heard = []

    def note(what):
        return lambda partitions: heard.append((what, partitions, threading.current_thread()))

    me = threading.current_thread()
    a = mq.consumer("g", on_assigned=note("assigned"), on_revoked=note("revoked"))
    assert heard == []
    a.poll()
    assert heard == [("assigned", [0, 1], me)]
    with mq.consumer("g") as b:
        a.poll()
        assert heard[1:] == [("revoked", b.assignment, me)]
    a.poll()
    assert [what for what, _, _ in heard] == ["assigned", "revoked", "assigned"]
    a.close()
    assert heard[-1] == ("revoked", [0, 1], me)


def test_a_listener_may_use_the_consumer(mq):
    fill(mq, 4)
    positions = []

    def assigned(partitions):
        for partition in partitions:
            consumer.seek(partition, 2)
            positions.append(consumer.position(partition))

    def revoked(_partitions):
        consumer.commit()

    consumer = mq.consumer("g", on_assigned=assigned, on_revoked=revoked)
    assert values(consumer.poll()) == [2, 3]
    assert positions == [2]
    consumer.close()
    assert mq.get_consumer_lag("g") == {0: 0}


def test_what_a_listener_raises_comes_out_of_poll_and_loses_nothing(mq):
    fill(mq, 2)

    def fail(_partitions):
        raise RuntimeError("no")

    with mq.consumer("g", on_assigned=fail) as consumer:
        with pytest.raises(RuntimeError):
            consumer.poll()
        assert values(consumer.poll()) == [0, 1]


def test_lost_is_told_when_somebody_removes_it_or_the_group(mq):
    fill(mq, 2)
    heard = []
    consumer = mq.consumer(
        "g", consumer_id="a", on_lost=lambda p: heard.append(("lost", p)), on_revoked=heard.append
    )
    messages = consumer.poll()
    mq.remove_consumer("g", "a")
    with pytest.raises(ConsumerExpelledError, match="remove_consumer"):
        consumer.ack(messages[0])
    with pytest.raises(ConsumerExpelledError, match="remove_consumer"):
        consumer.commit()
    with pytest.raises(ConsumerExpelledError, match="remove_consumer"):
        consumer.poll()
    assert heard == [("lost", [0])]
    with pytest.raises(ConsumerExpelledError):
        consumer.poll()
    assert heard == [("lost", [0])]
    consumer.close()
    fallback = mq.consumer("g", on_revoked=heard.append)
    fallback.poll()
    mq.delete_consumer_group("g")
    with pytest.raises(UnknownGroupError):
        fallback.poll()
    assert heard[1:] == [[0]]


# Liveness


def test_a_consumer_whose_thread_has_ended_leaves_at_once(mq):
    fill(mq, 2)
    kept = []

    def work():
        kept.append(mq.consumer("g"))
        assert len(kept[0].poll()) == 2

    with Crew() as crew:
        crew.start(work)
    with mq.consumer("g") as heir:
        assert values(heir.poll(timeout=WATCHDOG)) == [0, 1]  # maybe a moment after the join
        with pytest.raises(ConsumerExpelledError, match="thread has ended"):
            kept[0].poll()


def test_a_consumer_that_another_thread_took_over_stays(mq):
    fill(mq, 2)
    consumer = mq.consumer("g")
    polled, over = threading.Event(), threading.Event()

    def poll():
        consumer.poll()
        polled.set()
        assert over.wait(WATCHDOG)

    with Crew() as crew:
        crew.start(poll)
        assert polled.wait(WATCHDOG)
        consumer.poll()
        over.set()
    assert consumer.poll() == []
    assert len(mq.get_group_info("g").members) == 1
    consumer.close()


def test_a_consumer_that_nobody_holds_any_more_leaves_at_once(mq, caplog):
    fill(mq, 2)
    consumer = mq.consumer("g", consumer_id="forgotten")
    consumer.poll()
    with mq.consumer("g") as heir:
        del consumer
        gc.collect()
        assert values(heir.poll(timeout=WATCHDOG)) == [0, 1]
        assert len(mq.get_group_info("g").members) == 1
    assert "garbage-collected" in caplog.text


def test_who_does_not_poll_for_too_long_is_expelled(manual_mq, clock):
    mq = manual_mq
    fill(mq, 2)
    consumer = mq.consumer("g", max_poll_interval=60.0)
    messages = consumer.poll()
    clock.advance(59.0)
    consumer.ack(messages[0])  # a sign of life, and no poll
    assert len(mq.get_group_info("g").members) == 1
    clock.advance(1.5)
    assert mq.get_group_info("g").members == ()
    with pytest.raises(ConsumerExpelledError, match="max_poll_interval=60"):
        consumer.ack(messages[1])
    with pytest.raises(ConsumerExpelledError, match="max_poll_interval=60"):
        consumer.poll()
    with mq.consumer("g") as heir:
        assert values(heir.poll()) == [1]


def test_iterating_counts_as_polling(manual_mq, clock):
    mq = manual_mq
    fill(mq, 20)
    with mq.consumer("g", max_poll_interval=60.0) as consumer:
        for message in consumer:
            clock.advance(30.0)
            if message.value == 19:
                break
        assert len(mq.get_group_info("g").members) == 1


def test_a_session_ends_without_any_sign_of_life(manual_mq, clock):
    mq = manual_mq
    fill(mq, 4)
    consumer = mq.consumer("g", max_poll_interval=None, session_timeout=10.0)
    messages = consumer.poll()
    for message in messages[:2]:
        clock.advance(9.0)
        consumer.ack(message)
    clock.advance(9.0)
    consumer.commit()
    clock.advance(9.0)
    assert len(mq.get_group_info("g").members) == 1
    clock.advance(2.0)
    with pytest.raises(ConsumerExpelledError, match="session_timeout=10"):
        consumer.commit()


def test_who_waits_in_a_poll_is_alive(manual_mq, clock):
    mq = manual_mq
    fill(mq, 0)
    consumer = mq.consumer("g", max_poll_interval=60.0, session_timeout=10.0)
    got = []
    with Crew() as crew:
        crew.start(lambda: got.extend(consumer.poll(timeout=None)))
        while consumer._reader.session.polls == 0:
            mq.list_topics()
        for _ in range(20):
            clock.advance(50.0)
            assert len(mq.get_group_info("g").members) == 1
        mq.publish("t", Message("x"))
    assert values(got) == ["x"]
    consumer.close()


def test_no_thread_is_started_for_a_consumer(manual_mq):
    fill(manual_mq, 0)
    before = threading.active_count()
    consumers = [manual_mq.consumer("g") for _ in range(50)]
    for consumer in consumers:
        consumer.poll()
    assert threading.active_count() == before
    for consumer in consumers:
        consumer.close()


def test_a_consumer_keeps_its_broker_alive():
    mq = MessageQueue()
    fill(mq, 1)
    consumer = mq.consumer("g")
    broker = mq
    del mq
    gc.collect()
    assert values(consumer.poll()) == [0]
    consumer.close()
    broker.close()
