"""A stock exchange with the queue as its event bus.

::

    producers ──► orders ──► matching (a worker per partition) ──► trades ──► tape
                    └──────► book-view                               └──────► audit

Each of the four groups has a pool of workers. Orders are keyed by symbol, so the orders of a symbol
stand in one partition, in one order, and one worker at a time matches them: no lock, and nothing
left to chance. That makes the log the truth, and a book only what follows from it. To show it, the
matching starts anew at the end of the day and reads the log from the beginning: it arrives at the
same books and makes the same trades.
"""

from __future__ import annotations

import hashlib
import json
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from dmq_actors import BEGINNING, Delivery, Message, MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dmq_actors import DeliveredMessage, WorkerPool

    Books = dict[str, "OrderBook"]
    Handler = Callable[[list[DeliveredMessage]], object]

SYMBOLS = ("AAPL", "AMZN", "CSCO", "IBM", "JPM", "MSFT", "ORCL", "PEP")
PARTITIONS, PRODUCERS, ORDERS, BATCH = 4, 4, 4_000, 200


class Order(NamedTuple):
    """A limit order; prices are in cents."""

    order_id: int
    symbol: str
    side: str
    price: int
    shares: int


class Trade(NamedTuple):
    """Two orders that met, at the price of the one that was there first."""

    trade_id: str
    symbol: str
    price: int
    shares: int
    buy_order: int
    sell_order: int


class OrderBook:
    """The orders of one symbol that wait, by price, then time; and the trades made."""

    def __init__(self) -> None:
        self.trades: list[Trade] = []
        # Heaps of (rank, arrival, order). Arrival is a count, not a clock: a replay runs later.
        self._resting: dict[str, list[tuple[int, int, Order]]] = {"buy": [], "sell": []}
        self._arrivals = count()

    def submit(self, order: Order) -> list[Trade]:
        """Match an order with the other side; what is left of it rests in the book."""
        buying, before = order.side == "buy", len(self.trades)
        others = self._resting["sell" if buying else "buy"]
        while order.shares and others:
            rank, arrival, best = others[0]
            buy, sell = (order, best) if buying else (best, order)
            if buy.price < sell.price:
                break
            shares = min(buy.shares, sell.shares)
            trade_id = f"{order.symbol}-{len(self.trades)}"
            self.trades.append(
                Trade(trade_id, order.symbol, best.price, shares, buy.order_id, sell.order_id)
            )
            order = order._replace(shares=order.shares - shares)
            if shares < best.shares:
                others[0] = (rank, arrival, best._replace(shares=best.shares - shares))
            else:
                heappop(others)
        if order.shares:
            rank = -order.price if buying else order.price
            heappush(self._resting[order.side], (rank, next(self._arrivals), order))
        return self.trades[before:]

    def resting(self, side: str) -> list[Order]:
        """The orders of one side, the next to be matched first."""
        return [order for _, _, order in sorted(self._resting[side])]


def open_books() -> Books:
    """An empty book for each symbol."""
    return {symbol: OrderBook() for symbol in SYMBOLS}


def submit(books: Books, orders: Iterable[Order]) -> list[Trade]:
    """Match orders, each in the book of its symbol."""
    return [trade for order in orders for trade in books[order.symbol].submit(order)]


def values(messages: list[DeliveredMessage]) -> list[Any]:
    """The orders or trades in a batch."""
    return [message.value for message in messages]


def digest(books: Books) -> str:
    """A hash of every trade and every resting order, each in its place."""
    content = [
        [symbol, book.trades, book.resting("buy"), book.resting("sell")]
        for symbol, book in books.items()
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def random_orders(seed: int) -> list[Order]:
    """The orders of a day: buyers and sellers around prices that wander."""
    rng = random.Random(seed)  # noqa: S311  # a market, not a secret
    prices = dict.fromkeys(SYMBOLS, 10_000)
    orders = []
    for order_id in range(ORDERS):
        symbol, side = rng.choice(SYMBOLS), rng.choice(("buy", "sell"))
        prices[symbol] += rng.randint(-5, 5)
        limit = prices[symbol] + rng.randint(-40, 40)
        orders.append(Order(order_id, symbol, side, limit, rng.randint(1, 100)))
    return orders


class Exchange:
    """The topics, the groups, and what the pool of each group makes of what it reads."""

    def __init__(self, mq: MessageQueue) -> None:
        self.mq = mq
        self.books, self.view = open_books(), open_books()
        self.tape: list[Trade] = []
        self.audit: list[Trade] = []
        # Orders and trades are tuples that nobody can change, so readers may share them.
        mq.create_topic("orders", PARTITIONS, share_values=True)
        mq.create_topic("trades", PARTITIONS, share_values=True)
        mq.create_consumer_group("matching", "orders")
        mq.create_consumer_group("book-view", "orders")
        mq.create_consumer_group("tape", "trades", Delivery.AT_MOST_ONCE)  # old prices are no news
        mq.create_consumer_group("audit", "trades", Delivery.EXACTLY_ONCE)

    def trade(self, orders: list[Order]) -> None:
        """A day: all pools work while producers send, until nothing is left to do."""
        with (
            self._matching(self.books),
            self._workers("book-view", lambda messages: submit(self.view, values(messages))),
            self._workers("tape", lambda messages: self.tape.extend(values(messages))),
            self._auditing(),
            ThreadPoolExecutor(PRODUCERS) as threads,
        ):
            shares = [SYMBOLS[number::PRODUCERS] for number in range(PRODUCERS)]
            for sent in [threads.submit(self._produce, orders, symbols) for symbols in shares]:
                sent.result()
            self.mq.wait_idle(timeout=60.0)  # trades that handlers publish count, too

    def replay(self) -> Books:
        """Start the matching with empty books at the first order, and let the audit look on."""
        books = open_books()
        for partition in range(PARTITIONS):
            self.mq.seek("matching", partition, BEGINNING)
        with self._matching(books), self._auditing():
            self.mq.wait_idle(group="matching", timeout=60.0)
            self.mq.wait_idle(group="audit", timeout=60.0)
        return books

    def _workers(self, group: str, handle: Handler, concurrency: int = 1) -> WorkerPool:
        return self.mq.workers(group, handle, concurrency=concurrency, batch_size=BATCH)

    def _matching(self, books: Books) -> WorkerPool:
        return self._workers("matching", partial(self._match, books), PARTITIONS)

    def _auditing(self) -> WorkerPool:
        return self._workers("audit", lambda messages: self.audit.extend(values(messages)))

    def _produce(self, orders: list[Order], symbols: Iterable[str]) -> None:
        # A symbol has one producer: two would race, and time priority would go to the luckier one.
        messages = [Message(order, key=order.symbol) for order in orders if order.symbol in symbols]
        for start in range(0, len(messages), BATCH):
            self.mq.publish_many("orders", messages[start : start + BATCH])

    def _match(self, books: Books, messages: list[DeliveredMessage]) -> None:
        # Who starts anew has to begin at the first order, and publishes the same trades again. By
        # the ids that they are given here an exactly-once group knows those it has seen.
        trades = submit(books, values(messages))
        self.mq.publish_many(
            "trades",
            [Message(trade, key=trade.symbol, message_id=trade.trade_id) for trade in trades],
        )


def check(orders: list[Order], exchange: Exchange, replayed: Books) -> None:
    """The replay and the view agree with a plain loop, and no share appears or vanishes."""
    expected = open_books()
    submit(expected, orders)
    for books in (exchange.books, exchange.view, replayed):
        assert digest(books) == digest(expected)
    trades = sorted(trade for book in expected.values() for trade in book.trades)
    assert sorted(exchange.audit) == sorted(exchange.tape) == trades
    traded = sum(trade.shares for trade in exchange.audit)
    for side in ("buy", "sell"):
        ordered = sum(order.shares for order in orders if order.side == side)
        resting = sum(order.shares for book in expected.values() for order in book.resting(side))
        assert ordered - resting == traded


def main() -> None:
    """Trade for a day, replay it, check, print."""
    orders = random_orders(seed=2001)
    with MessageQueue() as mq:
        exchange = Exchange(mq)
        exchange.trade(orders)
        replayed = exchange.replay()
        duplicates = mq.get_group_info("audit").duplicates_total
    check(orders, exchange, replayed)
    assert duplicates == len(exchange.audit)  # the replay published every trade a second time

    print("symbol    last     bid     ask")
    last = {trade.symbol: trade.price for trade in exchange.tape}
    for symbol, book in exchange.books.items():
        bid, ask = book.resting("buy")[0].price, book.resting("sell")[0].price
        assert bid < ask
        print(f"{symbol:6} {last[symbol] / 100:7.2f} {bid / 100:7.2f} {ask / 100:7.2f}")
    print(
        f"{len(orders):,} orders, {len(exchange.audit):,} trades; the replay made "
        f"the same trades and books: {digest(replayed)[:16]}"
    )


if __name__ == "__main__":
    main()
