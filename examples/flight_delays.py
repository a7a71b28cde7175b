"""Flights from which airports are the latest? 10,000 real ones go through the queue.

::

    producers ──► flights ──► averages (4 workers): the delays of each airport
                     └──────► alerts (2 workers): five late flights in a row

The rows of data/flights.csv are keyed by origin airport, so the flights of an airport keep their
order and are always with the same worker: no lock anywhere. Six rows arrive damaged. They fail
three times in ``averages``, become dead letters, are repaired from the source and redriven. At the
end a plain loop over the file checks everything.
"""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from dmq_actors import (
    DEAD_LETTER_PREFIX,
    DeadLetterHeader,
    DeliveredMessage,
    Message,
    MessageQueue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

DATA = Path(__file__).parent / "data" / "flights.csv"
PARTITIONS, PRODUCERS, BATCH = 8, 4, 500
LATE, RUN = 15, 5  # later than 15 minutes is late; five late flights in a row alert
DAMAGED = range(1_100, 10_000, 1_500)  # lines that arrive unreadable; 7,100 costs PHX an alert


class Flight(NamedTuple):
    """A row of the file."""

    date: str
    delay: int
    distance: int
    origin: str
    destination: str

    @classmethod
    def parse(cls, line: str) -> Flight:
        """Read a row; ValueError if a column is missing or is no number."""
        date, delay, distance, origin, destination = line.split(",")
        return cls(date, int(delay), int(distance), origin, destination)


@dataclass
class Delays:
    """What is known of the flights from an airport."""

    flights: int = 0
    minutes: int = 0
    late: int = 0


class Averages:
    """A worker of the group ``averages``."""

    def __init__(self) -> None:
        self.airports: defaultdict[str, Delays] = defaultdict(Delays)

    def handle(self, message: DeliveredMessage) -> None:
        """Count a flight."""
        flight = Flight.parse(message.value)
        airport = self.airports[flight.origin]
        airport.flights += 1
        airport.minutes += flight.delay
        airport.late += flight.delay > LATE


class Alerts:
    """A worker of the group ``alerts``, which judges the flights as they pass.

    A row that it cannot read says nothing about a run, and to refuse it is the job of the other
    group. When the repaired row comes, its moment is over.
    """

    def __init__(self) -> None:
        self.raised: list[tuple[str, str]] = []
        self._run: defaultdict[str, int] = defaultdict(int)

    def handle(self, message: DeliveredMessage) -> None:
        """Look at a flight."""
        if "repaired" in message.headers:
            return
        try:
            flight = Flight.parse(message.value)
        except ValueError:
            return
        run = self._run[flight.origin] + 1 if flight.delay > LATE else 0
        self._run[flight.origin] = run
        if run == RUN:
            self.raised.append((flight.origin, flight.date))


def to_message(number: int, line: str) -> Message:
    """The row as it is sent; damaged ones have lost the delay or, every second, a column."""
    origin = Flight.parse(line).origin
    if number in DAMAGED:
        date, _, rest = line.split(",", 2)
        line = f"{date},{rest}" if DAMAGED.index(number) % 2 else f"{date},n/a,{rest}"
    return Message(line, key=origin, headers={"line": str(number)})


def produce(mq: MessageQueue, messages: list[Message], airports: set[str]) -> None:
    """A producer: publish the flights of its airports, batch by batch.

    What one thread publishes with one key keeps its order. Two producers with flights of the same
    airport would race, and a run of late flights would be a matter of luck.
    """
    share = [message for message in messages if message.key in airports]
    for start in range(0, len(share), BATCH):
        mq.publish_many("flights", share[start : start + BATCH])


def consume(
    mq: MessageQueue,
    group: str,
    consumer: str,
    handle: Callable[[DeliveredMessage], None],
    all_published: Event,
) -> None:
    """A worker: handle what comes until all is published and the group has caught up."""
    while True:
        messages = mq.poll(group, consumer, BATCH, timeout=0.1)
        for message in messages:
            try:
                handle(message)
            except ValueError as error:
                mq.acknowledge(group, message, success=False, error=error)
        if messages:
            mq.commit(group, consumer)  # all of the batch but what was just refused
        elif all_published.is_set() and not any(mq.get_consumer_lag(group).values()):
            return


def join(futures: Iterable[Future[None]]) -> None:
    """Wait for threads; the first error ends the wait."""
    for future in as_completed(futures):
        future.result()


def print_dead_letters(mq: MessageQueue) -> int:
    """Dead letters are in a topic like any other; their headers tell what happened."""
    mq.create_consumer_group("inspection", DEAD_LETTER_PREFIX + "flights")
    mq.add_consumer("inspection", "inspector")
    letters = mq.poll("inspection", "inspector", BATCH)
    for letter in letters:
        headers = {name: str(value) for name, value in letter.headers.items()}
        times, error = headers[DeadLetterHeader.FAILURES], headers[DeadLetterHeader.ERROR]
        print(f"line {headers['line']} failed {times} times: {error}")
    return len(letters)


def run(lines: dict[str, str], groups: Mapping[str, Sequence[Averages | Alerts]]) -> int:
    """Bring all rows through the queue; answers how many became dead letters."""
    messages = [to_message(int(number), line) for number, line in lines.items()]
    airports = sorted({str(message.key) for message in messages})
    all_published = Event()
    # The queue closes first, also after an error, and that wakes every thread the pool waits for.
    with ThreadPoolExecutor(max_workers=16) as pool, MessageQueue() as mq:
        mq.create_topic("flights", PARTITIONS)
        for group, workers in groups.items():
            mq.create_consumer_group(group, "flights")
            for number in range(len(workers)):  # all join first, so no airport moves later
                mq.add_consumer(group, f"{group}-{number}")

        def start_workers() -> list[Future[None]]:
            return [
                pool.submit(consume, mq, group, f"{group}-{number}", worker.handle, all_published)
                for group, workers in groups.items()
                for number, worker in enumerate(workers)
            ]

        def repair(message: Message) -> Message:
            line = lines[str(message.headers["line"])]
            return Message(line, message.key, {**message.headers, "repaired": "yes"})

        consumers = start_workers()
        shares = [set(airports[number::PRODUCERS]) for number in range(PRODUCERS)]
        join([pool.submit(produce, mq, messages, share) for share in shares])
        all_published.set()
        join(consumers)
        dead_letters = print_dead_letters(mq)
        mq.redrive("flights", repair=repair)
        join(start_workers())
    return dead_letters


def by_plain_loop(lines: dict[str, str]) -> tuple[dict[str, Delays], list[tuple[str, str]]]:
    """The delays and the alerts without a queue."""
    flights = {number: Flight.parse(line) for number, line in lines.items()}
    delays, alerts = {}, []
    for airport in {flight.origin for flight in flights.values()}:
        outgoing = {n: flight for n, flight in flights.items() if flight.origin == airport}
        minutes = [flight.delay for flight in outgoing.values()]
        delays[airport] = Delays(len(minutes), sum(minutes), sum(m > LATE for m in minutes))
        seen = [flight for number, flight in outgoing.items() if int(number) not in DAMAGED]
        for late, group in groupby(seen, lambda flight: flight.delay > LATE):
            dates = [flight.date for flight in group]
            if late and len(dates) >= RUN:
                alerts.append((airport, dates[RUN - 1]))
    return delays, alerts


def print_table(airports: dict[str, Delays]) -> None:
    """The ten airports of some size with the longest mean delay."""
    rows = [
        (delays.minutes / delays.flights, delays.late / delays.flights, delays.flights, airport)
        for airport, delays in airports.items()
        if delays.flights >= 50
    ]
    print("airport  flights  mean delay   late")
    for mean, late, flights, airport in sorted(rows, reverse=True)[:10]:
        print(f"{airport:7}  {flights:7}  {mean:6.1f} min  {late:5.1%}")


def main() -> None:
    """Run, check, print."""
    _, *rows = DATA.read_text(encoding="utf-8").splitlines()
    lines = {str(number): row for number, row in enumerate(rows, start=2)}
    averages, alerts = [Averages() for _ in range(4)], [Alerts() for _ in range(2)]
    started = time.perf_counter()
    dead_letters = run(lines, {"averages": averages, "alerts": alerts})
    seconds = time.perf_counter() - started

    airports = {airport: found for worker in averages for airport, found in worker.airports.items()}
    raised = [alert for worker in alerts for alert in worker.raised]
    expected_airports, expected_alerts = by_plain_loop(lines)
    assert airports == expected_airports
    assert sorted(raised) == sorted(expected_alerts)
    assert dead_letters == len(DAMAGED)

    print_table(airports)
    print(
        f"{len(lines):,} flights, {len(raised)} alerts, {dead_letters} dead letters repaired: "
        f"the same as by a plain loop, in {seconds:.2f} s"
    )


if __name__ == "__main__":
    main()
