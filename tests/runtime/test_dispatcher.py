"""`Dispatcher`: one actor, one thread at a time; nobody starves, and every ask is answered."""

from __future__ import annotations

import itertools
import sys
import threading
import time

import pytest
from support import WATCHDOG, Crew

from dmq_actors import DMQError
from dmq_actors._runtime.base import BrokerActor
from dmq_actors._runtime.dispatcher import Dispatcher
from dmq_actors._runtime.scheduler import TURN


@pytest.fixture
def hectic():
    """Let threads take turns 500 times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Ledger(BrokerActor):
    """Notes what it gets, and whether somebody else is in here at the same time."""

    def __init__(self, dispatcher):
        super().__init__("ledger", dispatcher)
        self.seen = {}
        self.inside = 0
        self.crowded = 0
        self.count = 0
        self.going = True

    def note(self, sender, number):
        self.inside += 1
        if self.inside != 1 or self.seen.get(sender, -1) != number - 1:
            self.crowded += 1
        self.seen[sender] = number
        self.count += 1
        self.inside -= 1

    def ask(self, sender, number):
        self.note(sender, number)
        return sender, number

    def go_round(self):
        """Keep itself busy for ever."""
        self.count += 1
        if self.going:
            self._ref.send(Ledger.go_round)

    def halt(self):
        self.going = False

    def total(self):
        return self.count


def test_100_000_messages_from_many_threads_never_meet_in_an_actor_and_keep_their_order(stage):
    refs = [stage.spawn(Ledger) for _ in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)

    def send(sender):
        for number in range(12_500):
            for ref in refs:
                ref.send(Ledger.note, sender, number)

    try:
        with Crew(50) as crew:
            for sender in range(4):
                crew.start(send, sender)
    finally:
        sys.setswitchinterval(before)
    actors = [ref._actor_weakref() for ref in refs]
    assert [ref.call(Ledger.total).get(timeout=WATCHDOG) for ref in refs] == [50_000] * 2
    assert [actor.crowded for actor in actors] == [0, 0]
    assert [actor.seen for actor in actors] == [dict.fromkeys(range(4), 12_499)] * 2


@pytest.mark.usefixtures("hectic")
def test_every_answer_reaches_its_asker_though_threads_swap_actors(stage):
    refs = [stage.spawn(Ledger) for _ in range(3)]

    def ask(sender):
        for number in range(400):
            for ref in refs:
                answer = ref.call(Ledger.ask, sender, number).get(timeout=WATCHDOG)
                assert answer == (sender, number)

    with Crew(50) as crew:
        for sender in range(4):
            crew.start(ask, sender)


@pytest.mark.usefixtures("hectic")
def test_an_ask_that_races_with_a_stop_is_answered_2000_times(stage):
    class Gone(DMQError):
        pass

    rounds = 2_000
    refs = [stage.spawn(Ledger) for _ in range(rounds)]
    start = threading.Barrier(3)
    answers = [[], []]

    def ask(into, sender):
        for ref in refs:
            start.wait(WATCHDOG)
            into.append([ref.call(Ledger.ask, sender, number) for number in range(3)])

    def stop():
        for ref in refs:
            start.wait(WATCHDOG)
            stage.end(ref, Gone)

    with Crew(50) as crew:
        for sender, into in enumerate(answers):
            crew.start(ask, into, sender)
        crew.start(stop)
    outcomes = {"answered": 0, "gone": 0}
    for promises in itertools.chain(*answers):
        refused = False
        for promise in promises:
            try:
                promise.get(timeout=WATCHDOG)
            except Gone:
                refused = True
                outcomes["gone"] += 1
            else:
                assert not refused, "answered after a refusal"
                outcomes["answered"] += 1
    assert sum(outcomes.values()) == rounds * 6
    assert all(outcomes.values()), outcomes
    stage.refs.clear()


class Probe(BrokerActor):
    """Runs when its turn comes, and looks how far a busy actor is."""

    def __init__(self, busy, told, dispatcher):
        super().__init__("probe", dispatcher)
        self.busy = busy
        self.told = told

    def look(self):
        self.told.append(self.busy.count)


def test_an_actor_that_is_never_done_does_not_starve_the_others(one_thread):
    busy, told = one_thread.spawn(Ledger), []
    probe = one_thread.spawn(Probe, busy._actor_weakref(), told)

    def jump(self):
        probe.send(Probe.look)
        told.append(self.count)

    busy.send(Ledger.go_round)
    for _ in range(50):
        told.clear()
        busy.call(jump).get(timeout=WATCHDOG)
        probe.call(Probe.look).get(timeout=WATCHDOG)
        sent, seen, _ = told
        assert 0 <= seen - sent <= TURN
    busy.call(Ledger.halt).get(timeout=WATCHDOG)


def test_a_flood_from_outside_does_not_starve_the_others(stage):
    flooded, other = stage.spawn(Ledger), stage.spawn(Ledger)
    done = threading.Event()

    def flood():
        number = 0
        while not done.is_set():
            flooded.call(Ledger.note, "flood", number)
            number += 1

    with Crew(30) as crew:
        crew.start(flood)
        try:
            for number in range(50):
                assert other.call(Ledger.ask, "me", number).get(timeout=WATCHDOG)
        finally:
            done.set()
    assert flooded.call(Ledger.total).get(timeout=WATCHDOG) > 0


def test_stop_lets_what_is_scheduled_run_and_ends_the_threads():
    dispatcher, ran = Dispatcher(3), []
    for number in range(50):
        dispatcher.schedule(lambda number=number: ran.append(number))
    dispatcher.stop()
    assert dispatcher.join(time.monotonic() + WATCHDOG) == []
    assert sorted(ran) == list(range(50))


def test_join_tells_which_threads_still_run():
    dispatcher, gate = Dispatcher(2), threading.Event()
    dispatcher.schedule(lambda: gate.wait(WATCHDOG))
    dispatcher.stop()
    [name] = dispatcher.join(time.monotonic() + 0.01)
    assert name.startswith("dmq-dispatcher-")
    gate.set()
    assert dispatcher.join(time.monotonic() + WATCHDOG) == []


def test_join_in_one_of_its_own_threads_does_not_wait_for_itself():
    dispatcher, told, done = Dispatcher(1), [], threading.Event()

    def run():
        told.append(dispatcher.join(time.monotonic() + WATCHDOG))
        done.set()

    dispatcher.schedule(run)
    assert done.wait(WATCHDOG)
    assert told == [["dmq-dispatcher-0"]]
    dispatcher.stop()
    assert dispatcher.join(time.monotonic() + WATCHDOG) == []


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_what_is_thrown_into_a_dispatcher_ends_neither_it_nor_the_run(error, caplog):
    dispatcher, runs, done = Dispatcher(1), [], threading.Event()

    def run():
        runs.append(None)
        if len(runs) == 1:
            raise error
        done.set()

    dispatcher.schedule(run)
    assert done.wait(WATCHDOG)
    assert [record.dmq["event"] for record in caplog.records] == ["actor.failed"]
    dispatcher.stop()
    assert dispatcher.join(time.monotonic() + WATCHDOG) == []
