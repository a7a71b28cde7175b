"""`BrokerActor`: it never dies of a message, never blocks, and ends when the broker says so."""

from __future__ import annotations

import gc
import threading
import weakref

import pykka
import pytest
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr
from support import WATCHDOG, HeldActor

from dmq_actors import (
    ActorCrashedError,
    BlockingInActorError,
    BrokerClosedError,
    DMQError,
    InvalidArgumentError,
)
from dmq_actors._runtime.base import BrokerActor
from dmq_actors._runtime.promise import Promise
from dmq_actors._runtime.ref import Call, Resume, Stop


class Counter(BrokerActor):
    """Counts, and fails in every way."""

    public = "for all"

    def __init__(self, dispatcher):
        super().__init__("counter", dispatcher)
        self.count = 0
        self.restarted = 0
        self.fail_in_hooks = None
        self.later = []

    def add(self, number=1):
        self.count += number
        return self.count

    def fail(self, error):
        raise error

    def promise(self):
        promise = Promise()
        self.later.append(promise)
        return promise

    def keep(self, value):
        return self.later.pop().resolve(value)

    def owe(self):
        return self._owe()

    def pass_on(self, other, number):
        return self._forward(other, Counter.add, number)

    def wait_for(self, promise):
        return promise.get(timeout=WATCHDOG)

    def ask_and_go_on(self, other):
        answer = self._owe()
        self._then(other.call(Counter.add, 10), self._went_on, answer, threading.get_ident())
        return answer

    def _went_on(self, promise, answer, thread):
        del thread
        self.count += promise.peek()
        answer.resolve(self.count)

    def _on_restart(self):
        self.restarted += 1
        if self.fail_in_hooks is not None:
            raise self.fail_in_hooks

    def _on_stop(self, why):
        del why
        if self.fail_in_hooks is not None:
            raise self.fail_in_hooks
        return "last words"


def answer(promise):
    return promise.get(timeout=WATCHDOG)


def logged(caplog):
    return [record.dmq["event"] for record in caplog.records]


def actor_of(ref):
    return ref._actor_weakref()


# What a message may do


def test_a_method_answers_with_its_value(stage):
    ref = stage.spawn(Counter)
    assert [answer(ref.call(Counter.add)) for _ in range(3)] == [1, 2, 3]


def test_a_method_that_answers_with_a_promise_answers_when_that_is_kept(stage):
    ref = stage.spawn(Counter)
    promise = ref.call(Counter.promise)
    assert answer(ref.call(Counter.add)) == 1
    assert not promise.done()
    ref.send(Counter.keep, "kept")
    assert answer(promise) == "kept"


def test_a_forwarded_question_is_answered_by_the_other(stage):
    first, second, third = (stage.spawn(Counter) for _ in range(3))

    def through(self, second, third):
        return self._forward(second, Counter.pass_on, third, 7)

    assert answer(first.call(through, second, third)) == 7
    assert answer(third.call(Counter.add, 0)) == 7


def test_a_forwarded_tell_needs_no_answer(stage):
    first, second = stage.spawn(Counter), stage.spawn(Counter)
    first.send(Counter.pass_on, second, 5)
    answer(first.call(Counter.add))
    assert answer(second.call(Counter.add, 0)) == 5


def test_then_goes_on_in_the_actor_that_asked(stage):
    first, second = stage.spawn(Counter), stage.spawn(Counter)
    answer(first.call(Counter.add, 1))
    assert answer(first.call(Counter.ask_and_go_on, second)) == 11


@pytest.mark.parametrize("error", [DMQError("ours"), TypeError("wrong call")])
def test_an_error_of_the_callers_goes_to_the_caller_and_is_not_logged(stage, caplog, error):
    ref = stage.spawn(Counter)
    with pytest.raises(type(error)) as info:
        answer(ref.call(Counter.fail, error))
    assert info.value is error
    assert logged(caplog) == []
    assert answer(ref.call(Counter.add)) == 1


def test_an_error_of_ours_goes_to_the_caller_and_is_logged_as_well(stage, caplog):
    ref = stage.spawn(Counter)
    with pytest.raises(ZeroDivisionError):
        answer(ref.call(Counter.fail, ZeroDivisionError()))
    assert answer(ref.call(Counter.add)) == 1
    assert logged(caplog) == ["actor.failed"]


def test_an_error_that_nobody_waits_for_is_logged(stage, caplog):
    ref = stage.spawn(Counter)
    ref.send(Counter.fail, DMQError("nobody waits"))
    assert answer(ref.call(Counter.add)) == 1
    [record] = caplog.records
    assert record.dmq["event"] == "actor.failed"
    assert record.dmq["actor"] == "counter"
    assert "nobody waits" in str(record.exc_info[1])


def test_what_is_logged_does_not_show_the_payload(stage, caplog):
    ref = stage.spawn(Counter)
    ref.send(Counter.add, "secret")
    answer(ref.call(Counter.add, 0))
    [record] = caplog.records
    assert "secret" not in str(record.dmq)
    assert "add" in record.dmq["message"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_an_exit_restarts_this_actor_only_and_its_caller_hears_of_it(stage, caplog, error):
    ref, other = stage.spawn(Counter), stage.spawn(Counter)
    answer(ref.call(Counter.add, 5))
    # What is thrown at a thread that runs actors for itself goes on in it, but for a SystemExit.
    told = ActorCrashedError if isinstance(error, SystemExit) else type(error)
    with pytest.raises(told):
        answer(ref.call(Counter.fail, error))
    assert answer(ref.call(Counter.add)) == 6
    assert answer(other.call(Counter.add)) == 1
    assert (actor_of(ref).restarted, actor_of(other).restarted) == (1, 0)
    assert "actor.restarted" in logged(caplog)
    assert ref.is_alive()


def test_messages_behind_an_exit_are_handled_in_their_order(stage, caplog):
    ref = stage.spawn(Counter)
    with HeldActor(ref):
        crash = ref.call(Counter.fail, SystemExit())
        behind = [ref.call(Counter.add) for _ in range(5)]
    with pytest.raises(ActorCrashedError):
        answer(crash)
    assert [answer(promise) for promise in behind] == [1, 2, 3, 4, 5]
    assert "actor.restarted" in logged(caplog)


def test_a_restart_that_fails_is_logged_and_does_not_end_the_actor(stage, caplog):
    ref = stage.spawn(Counter)
    actor_of(ref).fail_in_hooks = RuntimeError("in the hook")
    with pytest.raises(ActorCrashedError):
        answer(ref.call(Counter.fail, SystemExit()))
    assert answer(ref.call(Counter.add)) == 1
    assert logged(caplog).count("actor.failed") >= 1
    actor_of(ref).fail_in_hooks = None


def test_what_an_actor_owes_is_refused_when_it_restarts(stage):
    ref = stage.spawn(Counter)
    owed = ref.call(Counter.owe)
    with pytest.raises(ActorCrashedError):
        answer(ref.call(Counter.fail, SystemExit()))
    with pytest.raises(ActorCrashedError):
        answer(owed)


# What a message must not do


def test_waiting_on_an_actors_thread_raises_at_once(stage, caplog):
    ref, other = stage.spawn(Counter), stage.spawn(Counter)
    with pytest.raises(BlockingInActorError, match="counter"):
        answer(ref.call(Counter.wait_for, Promise()))
    assert answer(ref.call(Counter.wait_for, Promise.resolved(1))) == 1
    assert answer(other.call(Counter.add)) == 1
    assert logged(caplog) == []


def test_a_callback_of_a_user_that_waits_on_an_actors_thread_is_logged(stage, caplog):
    ref = stage.spawn(Counter)
    raised = threading.Event()

    def wait(_done):
        try:
            ref.call(Counter.add).get(timeout=WATCHDOG)
        except BlockingInActorError:
            raised.set()
            raise

    with HeldActor(ref):
        promise = ref.call(Counter.add)
        promise.add_done_callback(wait)
    assert raised.wait(WATCHDOG)
    assert answer(ref.call(Counter.add)) == 3
    stage.close()  # its threads have ended, so all is logged
    assert logged(caplog) == ["callback.failed"]


def test_waiting_is_allowed_again_outside_of_actors(stage):
    ref = stage.spawn(Counter)
    assert answer(ref.call(Counter.add)) == 1


@pytest.mark.parametrize(
    "message",
    [
        ProxySetAttr(attr_path=("count",), value=9),
        ProxySetAttr(attr_path=("_name",), value=9),
        ProxyCall(attr_path=("_on_restart",), args=(), kwargs={}),
        ProxyCall(attr_path=("__class__",), args=(), kwargs={}),
        ProxyCall(attr_path=("later", "clear"), args=(), kwargs={}),
        ProxyGetAttr(attr_path=("_mailbox",)),
        ProxyGetAttr(attr_path=()),
        {"a": "dict"},
        None,
        "text",
        object(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_no_public_method_is_refused_to_its_sender(stage, message):
    ref = stage.spawn(Counter)
    with pytest.raises(InvalidArgumentError, match="counter"):
        ref.ask(message, timeout=WATCHDOG)
    assert actor_of(ref).count == 0


def test_a_message_that_is_told_and_not_understood_is_logged(stage, caplog):
    ref = stage.spawn(Counter)
    ref.tell({"a": "dict"})
    answer(ref.call(Counter.add))
    assert logged(caplog) == ["actor.failed"]


def test_a_method_that_does_not_exist_is_an_error_of_its_caller(stage):
    ref = stage.spawn(Counter)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        ref.ask(ProxyCall(attr_path=("nothing_like_it",), args=(), kwargs={}), timeout=WATCHDOG)


def test_public_attributes_can_be_read(stage):
    ref = stage.spawn(Counter)
    assert ref.ask(ProxyGetAttr(attr_path=("public",)), timeout=WATCHDOG) == "for all"


# Beginnings


def test_what_is_sent_before_an_actor_has_started_is_handled_when_it_has(stage):
    """It is in pykka's registry before its loop is started; anybody may send to it by then."""

    class Early(Counter):
        def __init__(self, dispatcher):
            super().__init__(dispatcher)
            self.first = self._ref.call(Counter.add)

    ref = stage.spawn(Early)
    assert answer(actor_of(ref).first) == 1
    assert answer(ref.call(Counter.add)) == 2


def test_a_newborn_that_is_stopped_from_outside_works(stage):
    class Early(Counter):
        def _start_actor_loop(self):
            pykka.ActorRegistry.stop_all(block=False)
            super()._start_actor_loop()

    ref = stage.spawn(Early)
    assert answer(ref.call(Counter.add)) == 1


# Ends


@pytest.mark.parametrize("block", [True, False])
def test_a_stop_from_outside_answers_true_and_the_actor_goes_on(stage, caplog, block):
    ref = stage.spawn(Counter)
    answer(ref.call(Counter.add, 5))
    stopped = ref.stop(block=block)
    assert (stopped if block else answer(stopped)) is True
    assert ref.is_alive()
    assert answer(ref.call(Counter.add)) == 6
    assert logged(caplog) == ["actor.restarted"]


def test_stopping_all_actors_of_the_process_stops_none_of_ours(stage):
    refs = [stage.spawn(Counter) for _ in range(3)]
    owed = refs[0].call(Counter.owe)
    assert pykka.ActorRegistry.stop_all(timeout=WATCHDOG) == [True] * 3
    assert [answer(ref.call(Counter.add)) for ref in refs] == [1, 1, 1]
    assert not owed.done()
    assert set(pykka.ActorRegistry.get_all()) == set(refs)


def test_an_actor_that_stops_itself_goes_on_as_well(stage):
    ref = stage.spawn(Counter)
    answer(ref.call(pykka.Actor.stop))
    assert answer(ref.call(Counter.add)) == 1


def test_after_the_brokers_stop_every_message_gets_the_reason(stage):
    class WhyError(DMQError):
        pass

    ref = stage.spawn(Counter)
    owed, promised = ref.call(Counter.owe), ref.call(Counter.promise)
    with HeldActor(ref):
        stopped = stage.end(ref, WhyError)
        waiting = [ref.call(Counter.add) for _ in range(3)]
    assert answer(stopped) == "last words"
    for promise in [owed, *waiting, ref.call(Counter.add)]:
        with pytest.raises(WhyError):
            answer(promise)
    with pytest.raises(WhyError):
        ref.tell("anything")
    ref.send(Counter.add)  # a tell of our own is dropped
    assert not ref.is_alive()
    assert ref not in pykka.ActorRegistry.get_all()
    promised.abandon()


def test_a_second_stop_is_answered(stage):
    ref = stage.spawn(Counter)
    assert answer(stage.end(ref)) == "last words"
    assert answer(stage.end(ref)) is None
    assert ref.stop() is False
    assert answer(ref.stop(block=False)) is False


def test_an_end_that_fails_is_an_end(stage):
    ref = stage.spawn(Counter)
    actor_of(ref).fail_in_hooks = DMQError("in the hook")
    waiting = ref.call(Counter.owe)
    with pytest.raises(DMQError, match="in the hook"):
        answer(stage.end(ref))
    with pytest.raises(DMQError):
        answer(waiting)
    assert not ref.is_alive()
    assert ref not in pykka.ActorRegistry.get_all()


def test_a_reference_that_was_never_told_why_says_that_the_broker_is_closed(stage):
    ref = stage.spawn(Counter)
    ref.deliver(Stop(ref.why_gone), None)
    with pytest.raises(BrokerClosedError):
        while True:
            answer(ref.call(Counter.add))


def test_an_actor_is_forgotten_when_it_has_ended_and_nobody_holds_it(stage):
    ref = stage.spawn(Counter)
    gone = weakref.ref(actor_of(ref))
    answer(stage.end(ref))
    stage.refs.clear()
    del ref
    for _ in range(100):  # the thread that ran it may still be on its way out
        gc.collect()
        if gone() is None:
            break
        probe = stage.spawn(Counter)
        answer(probe.call(Counter.add))
        answer(stage.end(probe))
        stage.refs.clear()
    assert gone() is None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Call(Counter.add, (), {}), "Counter.add"),
        (Resume(Counter.add, ()), "Counter.add"),
        (Stop(DMQError), "Stop"),
    ],
)
def test_messages_show_what_they_are_for(message, text):
    assert repr(message) == text


def test_an_actor_shows_its_name(stage):
    assert str(actor_of(stage.spawn(Counter))) == "counter"
