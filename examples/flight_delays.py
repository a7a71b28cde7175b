"""Flights from which airports are the latest? 10,000 real ones go through the queue.

::

    producers ──► flights ──► averages (4 workers): the delays of each airport
                     └──────► alerts (2 workers): five late flights in a row

The rows of data/flights.csv are keyed by origin airport, so the flights of an airport keep their
order and are with one worker at a time: no lock anywhere. Six rows arrive damaged. They fail three
times in ``averages``, become dead letters, are repaired from the source and redriven. At the end a
plain loop over the file checks everything.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dmq_actors import DEAD_LETTER_PREFIX, DeadLetterHeader, Message, MessageQueue

if TYPE_CHECKING:
    from dmq_actors import DeliveredMessage

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
    """What the group ``averages`` makes of the flights.

    All its workers share this object. But an airport is a key, and a key is with one worker at a
    time, so no two of them ever have the same `Delays` in hand.
    """

    def __init__(self, airports: set[str]) -> None:
        self.airports = {airport: Delays() for airport in airports}

    def handle(self, message: DeliveredMessage) -> None:
        """Count a flight; fails if it cannot be read."""
        flight = Flight.parse(message.value)
        airport = self.airports[flight.origin]
        airport.flights += 1
        airport.minutes += flight.delay
        airport.late += flight.delay > LATE


class Alerts:
    """What the group ``alerts`` makes of the flights, which it judges as they pass.

    A row that it cannot read says nothing about a run, and to refuse it is the job of the other
    group. When the repaired row comes, its moment is over.
    """

    def __init__(self, airports: set[str]) -> None:
        self.raised: dict[str, list[str]] = {airport: [] for airport in airports}
        self._run = dict.fromkeys(airports, 0)

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
            self.raised[flight.origin].append(flight.date)


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


def print_dead_letters(mq: MessageQueue) -> int:
    """Dead letters are in a topic like any other; their headers tell what happened."""
    mq.create_consumer_group("inspection", DEAD_LETTER_PREFIX + "flights")
    with mq.consumer("inspection") as consumer:
        letters = consumer.poll()
        consumer.commit()
    for letter in letters:
        headers = {name: str(value) for name, value in letter.headers.items()}
        times, error = headers[DeadLetterHeader.FAILURES], headers[DeadLetterHeader.ERROR]
        print(f"line {headers['line']} failed {times} times: {error}")
    return len(letters)


def run(lines: dict[str, str], averages: Averages, alerts: Alerts) -> int:
    """Bring all rows through the queue; answers how many became dead letters."""
    messages = [to_message(int(number), line) for number, line in lines.items()]
    airports = sorted(averages.airports)
    shares = [set(airports[number::PRODUCERS]) for number in range(PRODUCERS)]

    def repair(letter: Message) -> Message:
        line = lines[str(letter.headers["line"])]
        return Message(line, letter.key, {**letter.headers, "repaired": "yes"})

    with MessageQueue() as mq:
        mq.create_topic("flights", PARTITIONS)
        mq.create_consumer_group("averages", "flights", max_failures=3)
        mq.create_consumer_group("alerts", "flights")
        with (
            mq.workers("averages", averages.handle, concurrency=4),
            mq.workers("alerts", alerts.handle, concurrency=2),
            ThreadPoolExecutor(PRODUCERS) as threads,
        ):
            for producing in [threads.submit(produce, mq, messages, share) for share in shares]:
                producing.result()
            mq.wait_idle(timeout=60.0, expected=ValueError)  # a ValueError is a damaged row
            dead_letters = print_dead_letters(mq)
            mq.redrive("flights", repair=repair)
            mq.wait_idle("flights", timeout=60.0, expected=ValueError)
    return dead_letters


def by_plain_loop(lines: dict[str, str]) -> tuple[dict[str, Delays], dict[str, list[str]]]:
    """The delays and the alerts without a queue."""
    flights = {number: Flight.parse(line) for number, line in lines.items()}
    delays, alerts = {}, {}
    for airport in {flight.origin for flight in flights.values()}:
        outgoing = {n: flight for n, flight in flights.items() if flight.origin == airport}
        minutes = [flight.delay for flight in outgoing.values()]
        delays[airport] = Delays(len(minutes), sum(minutes), sum(m > LATE for m in minutes))
        seen = [flight for number, flight in outgoing.items() if int(number) not in DAMAGED]
        runs = [list(run) for late, run in groupby(seen, lambda f: f.delay > LATE) if late]
        alerts[airport] = [run[RUN - 1].date for run in runs if len(run) >= RUN]
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
    logging.basicConfig(level=logging.ERROR)  # what fails is printed as a dead letter, once
    _, *rows = DATA.read_text(encoding="utf-8").splitlines()
    lines = {str(number): row for number, row in enumerate(rows, start=2)}
    airports = {Flight.parse(row).origin for row in rows}
    averages, alerts = Averages(airports), Alerts(airports)
    started = time.perf_counter()
    dead_letters = run(lines, averages, alerts)
    seconds = time.perf_counter() - started

    expected_delays, expected_alerts = by_plain_loop(lines)
    assert averages.airports == expected_delays
    assert alerts.raised == expected_alerts
    assert dead_letters == len(DAMAGED)

    print_table(averages.airports)
    print(
        f"{len(lines):,} flights, {sum(map(len, alerts.raised.values()))} alerts, "
        f"{dead_letters} dead letters repaired: the same as by a plain loop, in {seconds:.2f} s"
    )


if __name__ == "__main__":
    main()
