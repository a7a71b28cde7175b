"""SIGTERM while 100 messages are in work: none is lost, and none is done twice.

This is what ``kill``, ``docker stop``, systemd and Kubernetes send before they lose patience. In
between, a program has to do four things, in this order:

1. Take in nothing new: close the producer. Who sends now hears of it, and can go elsewhere.
2. Finish what was taken in: `wait_idle`. It is in memory, so nobody else can.
3. Let the workers go: leave the pool.
4. Close the broker, and look at what it says was left undone.

Run it with ``python examples/graceful_shutdown.py`` (not on Windows, which has no SIGTERM to send).
It starts the program as a process of its own, and sends it the signal in the worst moment.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from queue import SimpleQueue

from dmq_actors import DeliveredMessage, Message, MessageQueue, ProducerClosedError

IN_WORK, ORDERS = 100, 300


class Kitchen:
    """Handles orders. So that the moment is surely the worst, it cooks until the signal is here."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.signal_is_here = threading.Event()
        self.served: SimpleQueue[int] = SimpleQueue()

    def cook(self, message: DeliveredMessage) -> None:
        """The handler."""
        self.begun.release()
        self.signal_is_here.wait()
        self.served.put(message.value)


def serve() -> None:
    """The program: works until it is told to stop, and then stops in good order."""
    # A handler of signals may come between any two lines of the main thread, also while that holds
    # the lock inside of an Event, so `Event.set` could hang here. `SimpleQueue.put` cannot.
    signals: SimpleQueue[int] = SimpleQueue()
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda number, _frame: signals.put(number))

    kitchen = Kitchen()
    with MessageQueue() as mq:
        mq.create_topic("orders", num_partitions=IN_WORK)
        mq.create_consumer_group("kitchen", "orders")
        producer = mq.producer("orders")
        with mq.workers("kitchen", kitchen.cook, concurrency=IN_WORK):
            for number in range(ORDERS):
                producer.send(Message(number))
            producer.flush()
            for _ in range(IN_WORK):
                kitchen.begun.acquire()
            print("taken in:", mq.get_group_info("kitchen").lag, flush=True)

            signals.get()  # the main thread has nothing else to do
            kitchen.signal_is_here.set()

            producer.close()
            try:
                producer.send(Message(ORDERS))
            except ProducerClosedError:
                print("refused:", ORDERS)
            mq.wait_idle(timeout=20.0)  # less than the patience of whoever sent the signal
        report = mq.close()
    print("left undone:", sum(report.in_flight.values()), "clean:", report.clean)
    for _ in range(kitchen.served.qsize()):
        print("served:", kitchen.served.get())


def main() -> None:
    """Start the program, send SIGTERM when it has its hands full, and check what it did."""
    with subprocess.Popen(  # noqa: S603  # this file
        [sys.executable, *(f"-W{option}" for option in sys.warnoptions), __file__, "serve"],
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as program:
        try:
            assert program.stdout is not None
            taken_in = program.stdout.readline()
            program.send_signal(signal.SIGTERM)
            output, _ = program.communicate(timeout=30.0)
        finally:
            program.kill()  # does nothing to one that has ended

    lines = output.splitlines()
    served = [int(line.removeprefix("served: ")) for line in lines if line.startswith("served: ")]
    assert taken_in == f"taken in: {ORDERS}\n"
    assert lines[:2] == [f"refused: {ORDERS}", "left undone: 0 clean: True"]
    assert sorted(served) == list(range(ORDERS))  # none lost, none twice
    assert program.returncode == 0
    print(
        f"SIGTERM with {IN_WORK} orders in work and {ORDERS - IN_WORK} waiting: "
        f"{len(served)} served, none lost, none twice"
    )


if __name__ == "__main__":
    serve() if "serve" in sys.argv[1:] else main()
