"""The runtime knows nothing of queues: any actor runs on it."""

from __future__ import annotations

from support import WATCHDOG

from dmq_actors._runtime.base import BrokerActor


class Counter(BrokerActor):
    def __init__(self, dispatcher) -> None:
        super().__init__("counter", dispatcher)
        self.count = 0

    def add(self, number: int) -> int:
        self.count += number
        return self.count


def test_a_counter_of_ten_lines_runs_on_the_runtime_alone(one_thread):
    counter = one_thread.spawn(Counter)
    assert [counter.call(Counter.add, n).get(timeout=WATCHDOG) for n in (1, 2, 3)] == [1, 3, 6]
    assert counter.proxy().add(4).get(timeout=WATCHDOG) == 10
