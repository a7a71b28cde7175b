"""`Timer`, `TimerQueue`, `SystemClock` and `ManualClock`: what is due happens, once, in order."""

from __future__ import annotations

import random
import threading
import time
from functools import partial

import pytest
from support import WATCHDOG, Crew, all_at_once

from dmq_actors._runtime.clock import SystemClock, Timer, TimerQueue
from dmq_actors.testing import ManualClock


@pytest.fixture
def system():
    clock = SystemClock()
    yield clock
    assert clock.close(time.monotonic() + WATCHDOG)


def clock_threads():
    return [thread for thread in threading.enumerate() if thread.name == "dmq-clock"]


# Timer, TimerQueue


def test_a_timer_fires_once():
    calls = []
    timer = Timer(0.0, lambda: calls.append("fired"))
    timer.fire()
    timer.fire()
    assert calls == ["fired"]


def test_a_cancelled_timer_does_not_fire():
    timer = Timer(0.0, lambda: pytest.fail("fired"))
    timer.cancel()
    timer.cancel()
    timer.fire()


def test_a_timer_that_raises_is_logged(caplog):
    Timer(0.0, lambda: 1 // 0).fire()
    assert [record.dmq["event"] for record in caplog.records] == ["callback.failed"]


def test_timers_come_out_by_due_time_and_then_in_the_order_they_were_added():
    queue, rng = TimerQueue(), random.Random(4)
    timers = [Timer(float(rng.randint(0, 5)), lambda: None) for _ in range(200)]
    for timer in timers:
        queue.add(timer)
    expected = sorted(timers, key=lambda timer: timer.due)
    assert queue.pop_due(2.0) + queue.pop_due(9.0) == expected


def test_add_tells_whether_the_timer_is_the_next_one_due():
    queue = TimerQueue()
    assert queue.add(Timer(5.0, print)) is True
    assert queue.add(Timer(6.0, print)) is False
    assert queue.add(Timer(5.0, print)) is False
    assert queue.add(Timer(4.0, print)) is True


def test_what_is_due_now_is_due():
    queue = TimerQueue()
    timer = Timer(5.0, print)
    queue.add(timer)
    assert queue.pop_due(4.999) == []
    assert queue.pop_due(5.0) == [timer]
    assert queue.next_due() is None


def test_cancelled_timers_are_not_waited_for():
    queue = TimerQueue()
    first, second = Timer(1.0, print), Timer(2.0, print)
    queue.add(first)
    queue.add(second)
    first.cancel()
    assert queue.next_due() == 2.0
    second.cancel()
    assert queue.next_due() is None


# SystemClock


def test_the_system_clock_tells_the_time_of_the_system(system):
    assert abs(system.time() - time.time()) < 5
    assert abs(system.monotonic() - time.monotonic()) < 5


def test_there_is_no_thread_before_the_first_timer(system):
    before = len(clock_threads())
    system.monotonic()
    assert len(clock_threads()) == before
    system.call_at(system.monotonic() + 60, print)
    system.call_at(system.monotonic() + 60, print)
    assert len(clock_threads()) == before + 1


def test_timers_fire_in_order_and_not_too_early(system):
    fired, done = [], threading.Event()
    start = system.monotonic()
    for number in (3, 1, 2):
        due = start + number / 100
        system.call_at(due, lambda n=number, due=due: fired.append((n, system.monotonic() >= due)))
    system.call_at(start + 0.04, done.set)
    assert done.wait(WATCHDOG)
    assert fired == [(1, True), (2, True), (3, True)]


def test_a_timer_in_the_past_fires_at_once(system):
    done = threading.Event()
    system.call_at(float("-inf"), done.set)
    assert done.wait(WATCHDOG)


def test_a_timer_that_is_added_later_and_due_earlier_fires_first(system):
    done = threading.Event()
    system.call_at(system.monotonic() + 3600, lambda: pytest.fail("an hour early"))
    system.call_at(system.monotonic() + 0.005, done.set)
    assert done.wait(WATCHDOG)


@pytest.mark.parametrize("due", [1e18, float("inf")])
def test_a_timer_in_the_far_future_lets_the_others_fire(system, due, caplog):
    done = threading.Event()
    far = system.call_at(due, lambda: pytest.fail("too early"))
    system.call_at(system.monotonic() + 0.005, done.set)
    assert done.wait(WATCHDOG)
    far.cancel()
    assert caplog.records == []


def test_a_timer_that_raises_lets_the_others_fire(system, caplog):
    done = threading.Event()
    now = system.monotonic()
    system.call_at(now, lambda: 1 // 0)
    system.call_at(now, done.set)
    assert done.wait(WATCHDOG)
    assert [record.dmq["event"] for record in caplog.records] == ["callback.failed"]


def test_a_timer_may_set_the_next_one(system):
    done, ticks = threading.Event(), []

    def tick():
        ticks.append(None)
        if len(ticks) == 20:
            done.set()
        else:
            system.call_at(system.monotonic(), tick)

    system.call_at(system.monotonic(), tick)
    assert done.wait(WATCHDOG)


def test_a_thousand_timers_of_many_threads_fire_once_each_and_cancelled_ones_never(system):
    fired, lock, all_fired = [], threading.Lock(), threading.Event()

    def note(number):
        with lock:
            fired.append(number)
            if len(fired) == 800:
                all_fired.set()

    def add(start):
        rng = random.Random(start)
        for number in range(start, 1000, 4):
            due = system.monotonic() + rng.random() / 50
            timer = system.call_at(due + (3600 if number % 5 == 0 else 0), lambda n=number: note(n))
            if number % 5 == 0:
                timer.cancel()

    with Crew() as crew:
        for start in range(4):
            crew.start(add, start)
    assert all_fired.wait(WATCHDOG)
    assert sorted(fired) == [number for number in range(1000) if number % 5]


def test_close_drops_what_is_not_due_and_ends_the_thread():
    clock = SystemClock()
    clock.call_at(clock.monotonic() + 3600, lambda: pytest.fail("fired"))
    assert clock.close(time.monotonic() + WATCHDOG) is True
    assert clock.close(time.monotonic() + WATCHDOG) is True
    before = len(clock_threads())
    clock.call_at(clock.monotonic(), lambda: pytest.fail("fired"))
    assert len(clock_threads()) == before


def test_close_tells_when_a_timer_still_runs():
    clock, gate, running = SystemClock(), threading.Event(), threading.Event()
    clock.call_at(clock.monotonic(), lambda: (running.set(), gate.wait(WATCHDOG)))
    assert running.wait(WATCHDOG)
    assert clock.close(time.monotonic() + 0.01) is False
    gate.set()
    assert clock.close(time.monotonic() + WATCHDOG) is True


def test_close_from_a_timer_does_not_wait_for_itself():
    clock, told, done = SystemClock(), [], threading.Event()

    def close():
        told.append(clock.close(time.monotonic() + WATCHDOG))
        done.set()

    clock.call_at(clock.monotonic(), close)
    assert done.wait(WATCHDOG)
    assert told == [True]
    assert clock.close(time.monotonic() + WATCHDOG) is True


def test_a_clock_that_was_never_used_closes():
    assert SystemClock().close(time.monotonic()) is True


# ManualClock


def test_the_manual_clock_goes_to_the_next_timer_and_no_further():
    clock, fired = ManualClock(time=1_000.0), []
    for due in (0.3, 0.1, 0.1, 0.2):
        clock.call_at(due, partial(fired.append, due))
    clock.call_at(0.05, fired.clear).cancel()
    assert clock.next_timer() == 0.1
    assert clock.advance_to_next_timer()
    assert (fired, clock.monotonic(), clock.time()) == ([0.1, 0.1], 0.1, 1_000.1)
    assert clock.advance_to_next_timer()
    assert clock.advance_to_next_timer()
    assert (fired, clock.monotonic()) == ([0.1, 0.1, 0.2, 0.3], 0.3)


def test_without_a_timer_the_manual_clock_stays():
    clock = ManualClock()
    assert clock.next_timer() is None
    assert not clock.advance_to_next_timer()
    assert clock.monotonic() == 0.0


def test_a_timer_that_is_overdue_fires_without_time_going_back():
    clock, fired = ManualClock(), []
    clock.advance(5.0)
    clock.call_at(1.0, partial(fired.append, "late"))
    assert clock.advance_to_next_timer()
    assert (fired, clock.monotonic()) == (["late"], 5.0)


def test_a_manual_clock_stands_still_until_it_is_advanced():
    clock = ManualClock(time=1000.0)
    assert (clock.time(), clock.monotonic()) == (1000.0, 0.0)
    clock.advance(2.5)
    assert (clock.time(), clock.monotonic()) == (1002.5, 2.5)


def test_the_wall_clock_may_jump_and_the_other_does_not():
    clock = ManualClock()
    clock.advance(1)
    clock.set_time(5.0)
    assert (clock.time(), clock.monotonic()) == (5.0, 1.0)


def test_a_manual_clock_does_not_go_back():
    clock = ManualClock()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-0.1)
    assert clock.monotonic() == 0.0


def test_advancing_fires_what_is_due_in_order():
    clock, fired = ManualClock(), []
    for due in (3.0, 1.0, 2.0, 1.0, 9.0):
        clock.call_at(due, lambda due=due: fired.append(due))
    clock.advance(0)
    assert fired == []
    clock.advance(3)
    assert fired == [1.0, 1.0, 2.0, 3.0]
    clock.advance(100)
    assert fired == [1.0, 1.0, 2.0, 3.0, 9.0]


def test_a_timer_of_the_past_fires_at_the_next_advance():
    clock, fired = ManualClock(), []
    clock.advance(10)
    clock.call_at(5.0, lambda: fired.append("past"))
    clock.advance(0)
    assert fired == ["past"]


def test_a_timer_that_is_cancelled_does_not_fire_on_a_manual_clock():
    clock = ManualClock()
    clock.call_at(1.0, lambda: pytest.fail("fired")).cancel()
    clock.advance(2)


def test_a_timer_may_use_the_manual_clock():
    clock, fired = ManualClock(), []
    clock.call_at(1.0, lambda: clock.call_at(clock.monotonic() + 1, lambda: fired.append("next")))
    clock.advance(1)
    clock.advance(1)
    assert fired == ["next"]


def test_threads_that_advance_together_add_up_and_fire_everything_once():
    clock, fired = ManualClock(time=0.0), []
    for number in range(400):
        clock.call_at(number / 10, lambda number=number: fired.append(number))
    all_at_once([lambda: [clock.advance(0.25) for _ in range(40)]] * 4)
    assert (clock.monotonic(), clock.time()) == (40.0, 40.0)
    assert sorted(fired) == list(range(400))
