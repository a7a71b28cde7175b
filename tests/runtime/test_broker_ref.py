"""`BrokerRef`: pykka's reference, with answers that always come."""

from __future__ import annotations

import pykka
import pytest
from pykka.messages import ProxyCall
from support import WATCHDOG

from dmq_actors import BrokerTimeoutError, DMQError
from dmq_actors._runtime.base import BrokerActor
from dmq_actors._runtime.promise import Promise


class Adder(BrokerActor):
    def __init__(self, dispatcher):
        super().__init__("adder", dispatcher)
        self.total = 0

    def add(self, number, *, twice=False):
        self.total += number * (2 if twice else 1)
        return self.total

    def never(self):
        return Promise()


class GoneError(DMQError):
    pass


def add(number):
    return ProxyCall(attr_path=("add",), args=(number,), kwargs={})


@pytest.fixture
def ref(stage):
    return stage.spawn(Adder)


@pytest.fixture
def ended(stage, ref):
    stage.end(ref, GoneError).get(timeout=WATCHDOG)
    return ref


def test_ask_waits_by_default_and_promises_on_demand(ref):
    assert ref.ask(add(1)) == 1
    promise = ref.ask(add(1), block=False)
    assert isinstance(promise, Promise)
    assert promise.get(timeout=WATCHDOG) == 2


def test_ask_waits_no_longer_than_it_was_told(ref):
    never = ProxyCall(attr_path=("never",), args=(), kwargs={})
    with pytest.raises(BrokerTimeoutError):
        ref.ask(never, timeout=0.001)


def test_tell_and_send_do_not_wait(ref):
    assert ref.tell(add(1)) is None
    assert ref.send(Adder.add, 1, twice=True) is None
    assert ref.ask(add(0)) == 3


def test_call_takes_positional_and_keyword_arguments(ref):
    assert ref.call(Adder.add, 2, twice=True).get(timeout=WATCHDOG) == 4


def test_resume_runs_a_function_in_the_actor_in_its_turn(ref):
    seen = []
    for number in range(3):
        ref.send(Adder.add, 1)
        ref.resume(lambda at, actor=ref._actor_weakref(): seen.append((at, actor.total)), number)
    ref.ask(add(0))
    assert seen == [(0, 1), (1, 2), (2, 3)]


def test_asking_an_actor_that_has_ended_fails_at_once_with_the_reason(ended):
    with pytest.raises(GoneError):
        ended.ask(add(1), timeout=0)
    with pytest.raises(GoneError):
        ended.ask(add(1), block=False).get(timeout=0)
    with pytest.raises(GoneError):
        ended.call(Adder.add, 1).get(timeout=0)


def test_telling_an_actor_that_has_ended_raises_and_sending_does_not(ended):
    with pytest.raises(GoneError):
        ended.tell(add(1))
    ended.send(Adder.add, 1)
    ended.resume(print)


def test_each_refusal_is_an_error_of_its_own(ended):
    first, second = ended.call(Adder.add, 1), ended.call(Adder.add, 1)
    with pytest.raises(GoneError) as one:
        first.get(timeout=0)
    with pytest.raises(GoneError) as two:
        second.get(timeout=0)
    assert one.value is not two.value


def test_stop_answers_as_pykkas(ref, stage):
    assert ref.stop() is True
    assert ref.stop(block=False).get(timeout=WATCHDOG) is True
    assert ref.is_alive()
    stage.end(ref).get(timeout=WATCHDOG)
    assert ref.stop() is False
    assert ref.stop(block=False).get(timeout=WATCHDOG) is False


def test_a_reference_is_found_in_pykkas_registry(ref, stage):
    assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) is ref
    assert pykka.ActorRegistry.get_by_class(Adder) == [ref]
    assert pykka.ActorRegistry.get_by_class_name("Adder") == [ref]
    stage.end(ref).get(timeout=WATCHDOG)
    assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) is None


def test_a_broadcast_reaches_our_actors(ref):
    pykka.ActorRegistry.broadcast(add(5), Adder)
    assert ref.ask(add(0)) == 5


def test_a_proxy_calls_methods_and_reads_attributes(ref):
    proxy = ref.proxy()
    assert proxy.add(3).get(timeout=WATCHDOG) == 3
    proxy.add.defer(2, twice=True)
    assert proxy.total.get(timeout=WATCHDOG) == 7
    assert ref.proxy() == proxy


def test_a_proxy_sets_nothing_and_knows_no_private_names(ref):
    proxy = ref.proxy()
    with pytest.raises(DMQError):
        proxy.total = 5
    with pytest.raises(AttributeError):
        _ = proxy._restarts
    assert proxy.total.get(timeout=WATCHDOG) == 0


def test_a_proxy_that_was_made_before_the_end_gives_the_reason(ref, stage):
    proxy = ref.proxy()
    stage.end(ref, GoneError).get(timeout=WATCHDOG)
    with pytest.raises(GoneError):
        proxy.add(1).get(timeout=0)
    with pytest.raises(GoneError):
        proxy.add.defer(1)


def test_a_proxy_that_is_made_after_the_end_gives_the_reason_too(ended):
    """It may be a race: looked up alive, and gone when the proxy is made."""
    with pytest.raises(GoneError):
        ended.proxy()


def test_pykkas_get_all_reads_answers_of_our_actors(ref):
    proxy = ref.proxy()
    assert pykka.get_all([proxy.add(1), proxy.add(1)], timeout=WATCHDOG) == [1, 2]
