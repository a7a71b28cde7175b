"""`Promise` by itself: what a reader sees, and what the one who answers may do."""

from __future__ import annotations

import itertools
import queue
import sys
import threading
from functools import partial

import pykka
import pytest
from support import WATCHDOG, Crew, all_at_once

from dmq_actors import BrokerClosedError, BrokerTimeoutError, DMQError
from dmq_actors._runtime.promise import Abandonment, Promise, gather


@pytest.fixture
def hectic():
    """Let threads take turns 500 times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def raised(work):
    with pytest.raises(Exception) as info:  # noqa: PT011  # the caller looks at it
        work()
    return info.value


# Reading


def test_get_returns_what_was_answered_as_often_as_it_is_asked():
    promise = Promise.resolved(["a"])
    assert promise.get() is promise.get(timeout=0)


def test_get_waits_for_the_answer_of_another_thread():
    promise = Promise()
    with Crew() as crew:
        crew.start(lambda: promise.get(timeout=WATCHDOG) == 7 or pytest.fail("wrong answer"))
        promise.resolve(7)


def test_a_time_out_says_that_the_outcome_is_unknown_and_takes_nothing_back():
    promise = Promise()
    error = raised(lambda: promise.get(timeout=0.001))
    assert isinstance(error, BrokerTimeoutError | TimeoutError)
    assert "unknown" in str(error)
    promise.resolve("late")
    assert promise.get(timeout=0) == "late"


@pytest.mark.parametrize("timeout", [0, 0.0, -1, 1e-9])
def test_a_time_out_of_nothing_ends_at_once(timeout):
    assert isinstance(raised(lambda: Promise().get(timeout=timeout)), BrokerTimeoutError)


@pytest.mark.parametrize("timeout", [None, 1e12, sys.float_info.max])
def test_an_endless_time_out_is_no_error(timeout):
    promise = Promise()
    with Crew() as crew:
        crew.start(lambda: promise.get(timeout=timeout))
        promise.resolve()


def test_an_error_is_raised_at_every_get():
    promise = Promise()
    promise.fail(KeyError("k"))
    assert raised(promise.get) is raised(promise.get)


def test_an_error_holds_no_reference_to_its_promise():
    promise = Promise()
    promise.fail(ValueError("v"))
    error = raised(promise.get)
    frames = []
    at = error.__traceback__
    while at is not None:
        frames.append(at.tb_frame)
        at = at.tb_next
    read = [frame for frame in frames if frame.f_code.co_name == "_read"]
    assert all("self" not in frame.f_locals for frame in read)


def test_errors_of_pykka_become_errors_of_ours():
    promise = Promise()
    promise.fail(pykka.ActorDeadError("dead"))
    assert isinstance(raised(promise.get), BrokerClosedError)


def test_done_tells_whether_the_answer_is_there():
    promise = Promise()
    assert (promise.done(), repr(promise)) == (False, "<Promise pending>")
    promise.resolve()
    assert (promise.done(), repr(promise)) == (True, "<Promise done>")
    failed = Promise()
    failed.fail(ValueError())
    assert (failed.done(), repr(failed)) == (True, "<Promise failed>")


def test_finish_runs_once_and_in_the_thread_that_reads():
    threads = []

    def finish(value):
        threads.append(threading.current_thread())
        return value + 1

    promise = Promise()
    with Crew() as crew:
        crew.start(promise.resolve, 1, finish)
    assert [promise.get(), promise.get()] == [2, 2]
    assert threads == [threading.current_thread()]


def test_a_finish_that_raises_does_so_at_every_get():
    promise = Promise.resolved(0, lambda value: 1 // value)
    errors = [raised(promise.get), raised(promise.get)]
    assert [type(error) for error in errors] == [ZeroDivisionError] * 2


# Answering


def test_a_second_answer_is_refused_and_changes_nothing():
    promise = Promise.resolved(1)
    assert promise.resolve(2) is False
    assert promise.fail(ValueError()) is False
    assert promise.get() == 1


def test_set_twice_raises_queue_full_as_pykkas_futures_do():
    promise = Promise()
    promise.set(1)
    with pytest.raises(queue.Full):
        promise.set(2)
    with pytest.raises(queue.Full):
        promise.set_exception((ValueError, ValueError("late"), None))
    assert promise.get() == 1


def test_set_exception_takes_a_triple_or_what_is_being_handled():
    given, handled, kind = Promise(), Promise(), Promise()
    error = KeyError("given")
    given.set_exception((KeyError, error, None))
    assert raised(given.get) is error
    try:
        raise KeyError("handled")
    except KeyError as caught:
        handled.set_exception()
        assert raised(handled.get) is caught
    kind.set_exception((OSError, None, None))
    assert isinstance(raised(kind.get), OSError)


def test_set_exception_without_any_exception_is_an_error_for_the_reader():
    promise = Promise()
    promise.set_exception()
    assert isinstance(raised(promise.get), RuntimeError)


def test_set_without_a_value_answers_none():
    promise = Promise()
    promise.set()
    assert promise.get() is None


# Callbacks


def test_callbacks_run_once_in_order_with_the_promise():
    promise, calls = Promise(), []
    for number in range(3):
        promise.add_done_callback(lambda done, number=number: calls.append((number, done)))
    promise.resolve()
    promise.resolve()
    assert calls == [(number, promise) for number in range(3)]


def test_a_callback_on_a_promise_that_is_done_runs_at_once():
    calls = []
    promise = Promise.resolved(1)
    promise.add_done_callback(calls.append)
    assert calls == [promise]


def test_a_callback_may_read_and_add_callbacks():
    promise, calls = Promise(), []
    promise.add_done_callback(lambda done: done.add_done_callback(lambda d: calls.append(d.get())))
    promise.resolve(5)
    assert calls == [5]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_callback_that_raises_is_logged_and_hurts_nobody(error, caplog):
    promise, calls = Promise(), []

    def bad(_done):
        raise error

    promise.add_done_callback(bad)
    promise.add_done_callback(calls.append)
    assert promise.resolve(1) is True
    assert calls == [promise]
    assert promise.get() == 1
    assert [record.dmq["event"] for record in caplog.records] == ["callback.failed"]


# Made of others


def test_map_filter_join_and_reduce_work_as_pykkas():
    numbers, word = Promise(), Promise()
    mapped = numbers.map(sum)
    filtered = numbers.filter(lambda number: number > 1)
    reduced = numbers.reduce(lambda a, b: a * b)
    from_ten = numbers.reduce(lambda a, b: a * b, 10)
    joined = numbers.join(word, mapped)
    chained = numbers.map(len).map(str)
    numbers.set([1, 2, 3])
    word.set("w")
    made = [mapped, filtered, reduced, from_ten, joined, chained]
    answers = [6, [2, 3], 6, 60, [[1, 2, 3], "w", 6], "3"]
    assert [promise.get(timeout=WATCHDOG) for promise in made] == answers
    assert [promise.get(timeout=WATCHDOG) for promise in made] == answers


@pytest.mark.parametrize(
    "made", ["map", "filter", "join", "reduce"], ids="{} hands on the error".format
)
def test_what_is_made_of_a_failed_promise_fails_as_well(made):
    failed = Promise()
    derived = failed.join() if made == "join" else getattr(failed, made)(lambda *_: 1)
    failed.fail(DMQError("first"))
    assert str(raised(lambda: derived.get(timeout=WATCHDOG))) == "first"


def test_map_runs_its_function_in_the_thread_that_reads():
    promise, threads = Promise(), []
    mapped = promise.map(lambda _: threads.append(threading.current_thread()))
    with Crew() as crew:
        crew.start(promise.resolve)
    mapped.get()
    mapped.get()
    assert threads == [threading.current_thread()]


def test_map_of_an_unfinished_answer_finishes_it_first():
    promise = Promise.resolved(1, lambda value: value + 1)
    assert promise.map(lambda value: value * 10).get() == 20
    assert promise.get() == 2


def test_a_reduced_promise_is_done_when_its_source_is():
    source = Promise()
    reduced = source.reduce(lambda a, b: a + b)
    calls = []
    reduced.add_done_callback(calls.append)
    assert not reduced.done()
    source.resolve([1, 2])
    assert reduced.done()
    assert calls == [reduced]


def test_a_reduced_promise_can_be_read_by_many_threads_at_once():
    for _ in range(200):
        source = Promise()
        reduced = source.reduce(lambda a, b: a + b)
        works = [partial(reduced.get, timeout=WATCHDOG) for _ in range(4)]
        assert all_at_once([*works, lambda source=source: source.resolve([1, 2])]) == [3] * 4 + [
            True
        ]


def test_join_takes_what_pykka_makes_itself():
    first = Promise.resolved([1])
    joined = first.join(first.reduce(lambda a, b: a + b))
    assert joined.get(timeout=WATCHDOG) == [[1], 1]


def test_pykkas_get_all_reads_ours():
    assert pykka.get_all([Promise.resolved(1), Promise.resolved(2)], timeout=1) == [1, 2]


def test_gather_of_nothing_is_an_empty_list():
    assert gather([]).get(timeout=0) == []


def test_gather_keeps_the_order_whoever_answers_first():
    promises = [Promise() for _ in range(3)]
    joint = gather(iter(promises))
    for at in (2, 0, 1):
        assert not joint.done()
        promises[at].resolve(at)
    assert joint.get(timeout=0) == [0, 1, 2]


def test_gather_fails_with_the_first_error_when_all_are_done():
    promises = [Promise() for _ in range(3)]
    joint = gather(promises)
    promises[2].fail(KeyError("third"))
    promises[1].fail(OSError("second"))
    assert not joint.done()
    promises[0].resolve()
    assert isinstance(raised(lambda: joint.get(timeout=0)), OSError)


def test_gather_takes_the_same_promise_twice():
    promise = Promise()
    joint = gather([promise, promise])
    promise.resolve(1)
    assert joint.get(timeout=0) == [1, 1]


def test_gather_finishes_each_answer_once():
    promises = [Promise.resolved(at, lambda value: value + 1) for at in range(3)]
    assert promises[0].get() == 1
    assert gather(promises).get(timeout=0) == [1, 2, 3]
    assert [promise.get() for promise in promises] == [1, 2, 3]


@pytest.mark.usefixtures("hectic")
def test_a_promise_that_is_read_while_it_is_gathered_is_finished_once():
    for _ in range(2_000):
        source, last = Promise.resolved(0), Promise()
        mapped = source.map(lambda value: value + 1)
        joint = mapped.join(last)
        with Crew() as crew:
            crew.start(mapped.get)
            last.resolve(0)
        assert joint.get(timeout=WATCHDOG) == [1, 0]


def test_pipe_to_answers_another_promise_with_value_error_and_finish():
    value, error, unfinished = Promise(), Promise(), Promise()
    replies = [Promise(), Promise(), Promise()]
    for source, reply in zip((value, error, unfinished), replies, strict=True):
        source.pipe_to(reply)
    value.resolve(1)
    error.fail(KeyError("k"))
    unfinished.resolve(1, lambda number: number + 1)
    assert replies[0].get(timeout=0) == 1
    assert isinstance(raised(lambda: replies[1].get(timeout=0)), KeyError)
    assert replies[2].get(timeout=0) == 2


# Giving up


def abandonable(calls):
    promise = Promise()
    promise.when_abandoned(Abandonment(partial(calls.append, "abandoned")))
    return promise


def test_abandon_is_heard_once():
    calls = []
    promise = abandonable(calls)
    promise.abandon()
    promise.abandon()
    assert calls == ["abandoned"]


def test_what_was_read_cannot_be_abandoned():
    calls = []
    promise = abandonable(calls)
    promise.resolve(1)
    promise.get()
    promise.abandon()
    del promise
    assert calls == []


def test_what_was_answered_and_not_read_can_be_abandoned():
    calls = []
    promise = abandonable(calls)
    promise.resolve(1)
    promise.abandon()
    assert calls == ["abandoned"]


def test_a_promise_that_was_abandoned_before_it_was_known_how_is_heard_all_the_same():
    calls = []
    reply, source = Promise(), abandonable(calls)
    reply.abandon()
    source.pipe_to(reply)
    assert calls == ["abandoned"]


def test_a_time_out_abandons_nothing():
    calls = []
    promise = abandonable(calls)
    raised(lambda: promise.get(timeout=0))
    assert calls == []
    promise.resolve()
    promise.get()


def test_abandoning_what_was_made_of_a_promise_abandons_it():
    calls = []
    promise = abandonable(calls)
    mapped = promise.map(str)
    promise.resolve(1)
    mapped.abandon()
    assert calls == ["abandoned"]


def test_dropping_what_was_made_of_a_promise_leaves_it_to_its_reader():
    calls = []
    promise = abandonable(calls)
    promise.resolve([1])
    promise.map(str)
    promise.join(Promise.resolved(2))
    assert calls == []
    assert promise.get() == [1]


# Races


@pytest.mark.usefixtures("hectic")
def test_ten_thousand_answers_race_with_their_readers_and_each_arrives():
    promises = [Promise() for _ in range(10_000)]
    read = [[], []]

    def answer(places):
        for at in places:
            promises[at].resolve(at)

    def wait(into):
        into.extend(promise.get(timeout=WATCHDOG) for promise in promises)

    with Crew(60) as crew:
        for into in read:
            crew.start(wait, into)
        crew.start(answer, range(0, 10_000, 2))
        crew.start(answer, range(1, 10_000, 2))
    assert read == [list(range(10_000))] * 2


@pytest.mark.usefixtures("hectic")
def test_of_many_answers_one_wins_and_all_callbacks_run_once():
    for _ in range(300):
        promise, calls, wins = Promise(), itertools.count(), []
        works = [lambda at=at, p=promise: wins.append(at) if p.resolve(at) else None for at in "ab"]
        works += [lambda p=promise, c=calls: p.add_done_callback(lambda _: next(c))] * 3
        all_at_once(works)
        assert len(wins) == 1
        assert promise.get(timeout=0) == wins[0]
        assert next(calls) == 3


@pytest.mark.usefixtures("hectic")
def test_a_reader_and_an_abandoner_do_not_both_win():
    for _ in range(500):
        calls = []
        promise = abandonable(calls)
        promise.resolve("answer")
        order = all_at_once([promise.get, promise.abandon])
        assert order[0] == "answer"
        assert len(calls) <= 1
