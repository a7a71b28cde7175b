"""`Mailbox`: first in, first out; each put asks for the actor; closed for good."""

from __future__ import annotations

import sys
import threading

import pytest
from support import Crew, all_at_once

from dmq_actors._runtime.mailbox import Mailbox


def take(mailbox):
    """The next message, or None."""
    try:
        return next(iter(mailbox))
    except IndexError:
        return None


def mailbox_and_calls():
    mailbox, calls = Mailbox(), []
    mailbox.schedule = lambda: calls.append("run")
    return mailbox, calls


def test_messages_come_out_in_the_order_they_went_in():
    mailbox, _ = mailbox_and_calls()
    for number in range(5):
        assert not mailbox.put((number, None))
    assert [take(mailbox) for _ in range(6)] == [*((number, None) for number in range(5)), None]


def test_each_put_asks_for_the_actor_after_the_message_is_in():
    mailbox, seen = Mailbox(), []
    mailbox.schedule = lambda: seen.append(len(mailbox))
    mailbox.put((1, None))
    mailbox.put((2, None))
    assert seen == [1, 2]


def test_a_put_that_is_interrupted_asks_for_the_actor_all_the_same():
    mailbox, calls = Mailbox(), []

    def schedule():
        calls.append("run")
        if len(calls) == 1:
            raise KeyboardInterrupt

    mailbox.schedule = schedule
    with pytest.raises(KeyboardInterrupt):
        mailbox.put((1, None))
    assert calls == ["run"] * 2
    assert take(mailbox) == (1, None)


def test_a_closed_mailbox_takes_nothing_and_schedules_nobody():
    mailbox, calls = mailbox_and_calls()
    mailbox.close()
    assert mailbox.put((1, None)) == [(1, None)]
    assert take(mailbox) is None
    assert calls == []


def test_close_hands_over_what_was_not_handled_once():
    mailbox, _ = mailbox_and_calls()
    for number in range(3):
        mailbox.put((number, None))
    take(mailbox)
    assert mailbox.close() == [(1, None), (2, None)]
    assert mailbox.close() == []


def test_what_pykkas_own_loop_would_use_works():
    mailbox, _ = mailbox_and_calls()
    assert mailbox.empty()
    mailbox.put((1, None))
    assert not mailbox.empty()
    assert mailbox.get() == (1, None)
    with pytest.raises(IndexError):
        mailbox.get()


def test_a_message_is_either_taken_or_left_over_or_refused():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(300):
            put_against_close()
    finally:
        sys.setswitchinterval(before)


def put_against_close():
    mailbox, calls = mailbox_and_calls()
    numbers = range(20)
    accepted, refused, taken = [], [], []

    def put(start):
        for number in numbers[start::2]:
            (refused if mailbox.put((number, None)) else accepted).append(number)

    def take_some():
        taken.extend(envelope[0] for _ in numbers if (envelope := take(mailbox)))

    left = all_at_once([mailbox.close, lambda: put(0), lambda: put(1), take_some])[0]
    assert sorted(accepted + refused) == list(numbers)
    assert sorted(taken + [number for number, _ in left]) == sorted(accepted)
    assert len(calls) <= len(numbers)


def test_many_putters_lose_nothing_and_keep_their_own_order():
    mailbox, taken, done = Mailbox(), [], threading.Event()
    wake = threading.Semaphore(0)
    mailbox.schedule = wake.release

    def put(name):
        for number in range(2_000):
            mailbox.put(((name, number), None))

    def run():
        while len(taken) < 8_000 and wake.acquire(timeout=10):
            while envelope := take(mailbox):
                taken.append(envelope[0])
        done.set()

    with Crew() as crew:
        crew.start(run)
        for name in "abcd":
            crew.start(put, name)
    assert done.is_set()
    for name in "abcd":
        assert [number for who, number in taken if who == name] == list(range(2_000))
