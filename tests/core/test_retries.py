"""`RetryQueue` against a dict of what waits, for the three orders."""

from __future__ import annotations

import sys

import pytest
from core_support import examples
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dmq_actors import RetryOrder
from dmq_actors._core import retries
from dmq_actors._core.retries import RetryQueue

ORDERS = list(RetryOrder)
KEYS = [None, b"a", b"b", b""]
offsets = st.integers(0, 15)
HIGHEST = 40


def key_of(offset):
    """A message has one key for life; one in four has none."""
    return KEYS[offset * 7 % 4]


class RetryMachine(RuleBasedStateMachine):
    """The model: which offsets wait, and until when; None is held behind another."""

    order = RetryOrder.KEY

    @initialize()
    def begin(self):
        self.queue = RetryQueue(self.order)
        self.model: dict[int, float | None] = {}
        self.now = 0.0

    @rule(offset=offsets, delay=st.none() | st.sampled_from([0.0, 1.0, 2.5, 60.0]))
    def wait(self, offset, delay):
        if delay is None:
            self.queue.wait(offset, key_of(offset))
            self.model[offset] = float("-inf")
        else:
            self.queue.wait(offset, key_of(offset), self.now + delay)
            self.model[offset] = self.now + delay

    @rule(ahead=st.integers(1, 3))
    def hold(self, ahead):
        """What is held is read just now, so it is above all that waits."""
        offset = max(self.model, default=0) + ahead
        if offset >= HIGHEST:
            return
        held = self.queue.hold(offset, key_of(offset))
        assert held == any(self.lane(other) == self.lane(offset) for other in self.model)
        if held:
            self.model[offset] = None

    @rule(offset=offsets)
    def take(self, offset):
        self.queue.take(offset)
        self.model.pop(offset, None)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 100.0]))
    def let_time_pass(self, seconds):
        self.now += seconds

    @rule(limit=st.integers(1, 20))
    def ready(self, limit):
        found = self.queue.ready(self.now, limit)
        assert found == self.free()[:limit]
        due = self.queue.next_due()
        if not self.model:
            assert due is None
        elif found:
            assert due is not None
            assert due <= self.now
        else:
            assert due is not None
            assert self.now < due <= min(self.due(head) for head in self.heads())

    @precondition(lambda self: self.model)
    @rule(limit=st.integers(1, 5))
    def take_what_is_ready(self, limit):
        for offset in self.queue.ready(self.now, limit):
            assert self.queue.is_ready(offset, self.now)
            self.queue.take(offset)
            del self.model[offset]

    @rule(start=offsets, length=st.integers(0, 9))
    def between(self, start, length):
        found = self.queue.between(start, start + length)
        assert found == sorted(o for o in self.model if start <= o < start + length)

    @precondition(lambda self: len(self.model) > 5)
    @rule()
    def clear(self):
        self.queue.clear()
        self.model.clear()

    @invariant()
    def it_knows_what_waits(self):
        assert len(self.queue) == len(self.model)
        assert all((offset in self.queue) == (offset in self.model) for offset in range(HIGHEST))
        waiting = {offset for offset, due in self.model.items() if due is not None}
        assert set(self.queue.waiting) == waiting
        assert self.queue.held == len(self.model) - len(waiting)

    @invariant()
    def only_the_head_of_a_lane_is_ready(self):
        for offset in range(HIGHEST):
            ready = offset in self.heads() and self.due(offset) <= self.now
            assert self.queue.is_ready(offset, self.now) == ready

    @invariant()
    def nothing_new_is_read_while_a_partition_in_order_waits(self):
        closes = self.order is RetryOrder.PARTITION and bool(self.model)
        assert self.queue.closes_partition == closes

    @invariant()
    def an_empty_queue_is_never_due(self):
        if not self.model:
            assert self.queue.next_due() is None

    def lane(self, offset):
        if self.order is RetryOrder.PARTITION:
            return "all"
        key = key_of(offset)
        return offset if key is None or self.order is RetryOrder.NONE else key

    def lanes(self):
        lanes: dict[object, list[int]] = {}
        for offset in sorted(self.model):
            lanes.setdefault(self.lane(offset), []).append(offset)
        return list(lanes.values())

    def heads(self):
        return [lane[0] for lane in self.lanes()]

    def due(self, offset):
        due = self.model[offset]
        return float("-inf") if due is None else due

    def free(self):
        found = []
        for lane in self.lanes():
            for offset in lane:
                if self.due(offset) > self.now:
                    break
                found.append(offset)
        return sorted(found)


@pytest.mark.parametrize("order", ORDERS)
def test_it_does_what_a_dict_of_what_waits_does(order):
    machine = type("Machine", (RetryMachine,), {"order": order})
    run_state_machine_as_test(machine, settings=examples(40, steps=40))


def test_later_messages_of_a_key_go_when_the_first_one_is_due():
    queue = RetryQueue(RetryOrder.KEY)
    queue.wait(3, b"a", due=10.0)
    assert queue.hold(4, b"a")
    assert not queue.hold(5, b"b")
    assert queue.ready(9.9, 10) == []
    assert queue.next_due() == 10.0
    assert queue.ready(10.0, 10) == [3, 4]


def test_a_second_failure_of_the_same_message_moves_its_time():
    queue = RetryQueue(RetryOrder.KEY)
    queue.wait(3, b"a", due=1.0)
    queue.wait(3, b"a", due=5.0)
    assert queue.ready(1.0, 10) == []
    assert queue.next_due() == 5.0
    assert len(queue) == 1


@pytest.mark.parametrize("order", ORDERS)
def test_when_the_only_message_that_waits_is_completed_nothing_is_due(order):
    """Else a poll that waits would look at a time that has passed and miss the next one."""
    queue = RetryQueue(order)
    queue.wait(3, b"a", due=1.0)
    queue.take(3)
    assert len(queue) == 0
    assert queue.next_due() is None


def test_messages_without_a_key_do_not_wait_for_each_other():
    queue = RetryQueue(RetryOrder.KEY)
    queue.wait(3, None, due=10.0)
    assert not queue.hold(4, None)


def test_the_empty_key_is_a_key():
    queue = RetryQueue(RetryOrder.KEY)
    queue.wait(3, b"", due=10.0)
    assert queue.hold(4, b"")


def test_a_partition_that_holds_too_many_is_read_no_further(monkeypatch):
    monkeypatch.setattr(retries, "MAX_HELD", 3)
    queue = RetryQueue(RetryOrder.KEY)
    queue.wait(0, b"a", due=10.0)
    for offset in (1, 2, 3):
        assert not queue.closes_partition
        assert queue.hold(offset, b"a")
    assert queue.closes_partition
    queue.take(2)
    assert not queue.closes_partition


@pytest.mark.parametrize("limit", [sys.maxsize, sys.maxsize + 1, 10**30])
def test_a_limit_beyond_every_list_gives_all(limit):
    """``poll(max_messages=...)`` has no upper limit."""
    queue = RetryQueue(RetryOrder.KEY)
    queue.wait(3, b"a")
    assert queue.ready(0.0, limit) == [3]
