"""A web service with asyncio: it takes orders over HTTP, and handles them after it has answered.

::

    POST /orders ──► producer ──► orders ──► billing (16 tasks): slow, one customer in order
    GET /statistics ◄── counters ◄──┴──────► statistics (a consumer of its own)

* A request publishes with ``await producer.send(...)`` and answers 202: it is stored.
* The handler of the pool is a coroutine function, so its workers are tasks of the server's loop.
* Starlette's lifespan is the life of the broker. When the server stops, it answers the requests
  that it has begun, the lifespan finishes what was accepted, and only then the process ends.

It needs ``pip install 'dmq-actors[examples]'``. ``python examples/asyncio_service.py`` starts a
real server, sends real requests, and stops it while it is busy. In the folder ``examples``,
``uvicorn asyncio_service:app`` serves until Ctrl-C.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from dmq_actors import Message, MessageQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from dmq_actors import AsyncConsumer, DeliveredMessage, Producer

WORKERS = 16


@dataclass
class Service:
    """What the requests and the handlers share. All of it is used by one event loop only."""

    producer: Producer
    bank: asyncio.Lock = field(default_factory=asyncio.Lock)  # it does one thing at a time
    ordered: Counter[str] = field(default_factory=Counter)
    billed: dict[str, list[int]] = field(default_factory=dict)

    async def bill(self, message: DeliveredMessage) -> None:
        """Handle one order: the handler of the pool ``billing``."""
        async with self.bank:
            await asyncio.sleep(0.001)  # whatever takes its time: a database, another service
        self.billed.setdefault(str(message.key), []).append(message.value["number"])

    async def count(self, consumer: AsyncConsumer) -> None:
        """Count what is ordered: a loop of your own, where a handler is not enough."""
        async for message in consumer:
            self.ordered[message.value["item"]] += 1
            await consumer.ack(message)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """From before the first request until after the last one."""
    mq = MessageQueue()
    try:
        await mq.coordinator.create_topic("orders", WORKERS)
        for group in ("billing", "statistics"):
            await mq.coordinator.create_consumer_group(group, "orders")
        async with mq.producer("orders") as producer, mq.consumer("statistics") as consumer:
            service = app.state.service = Service(producer)
            async with mq.workers("billing", service.bill, concurrency=WORKERS):
                counting = asyncio.create_task(service.count(consumer))
                yield
                # No request is under way any more. What they were promised is done before we go.
                await producer.aclose()
                await asyncio.to_thread(mq.wait_idle, timeout=20.0)
                consumer.wakeup()
                await counting
    finally:
        await asyncio.to_thread(mq.close)  # it waits for threads, so not in the loop


async def post_order(request: Request) -> JSONResponse:
    """Take an order: ``{"customer": "anna", "item": "book", "number": 1}``."""
    order = await request.json()
    service: Service = request.app.state.service
    stored = await service.producer.send(Message(order, key=order["customer"]))
    return JSONResponse({"partition": stored.partition, "offset": stored.offset}, status_code=202)


async def get_statistics(request: Request) -> JSONResponse:
    """Answer how many of each item were ordered so far."""
    return JSONResponse(dict(request.app.state.service.ordered))


app = Starlette(
    routes=[
        Route("/orders", post_order, methods=["POST"]),
        Route("/statistics", get_statistics),
    ],
    lifespan=lifespan,
)


async def send_orders(client: httpx.AsyncClient, customer: str, orders: int) -> None:
    """Order one thing after the other; each is sent when the one before is accepted."""
    for number in range(orders):
        order = {"customer": customer, "item": f"item-{number % 3}", "number": number}
        response = await client.post("/orders", json=order)
        assert response.status_code == httpx.codes.ACCEPTED, response.text


async def main(customers: int = 8, orders: int = 25) -> None:
    """Serve, order, stop while orders wait, and check that each accepted one was handled."""
    with socket.create_server(("127.0.0.1", 0)) as listening:  # 0: a port that is free
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or it waits for acks
        host, port = listening.getsockname()
        server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:
            assert (await client.get("/statistics")).json() == {}  # answers, so it has started
            service: Service = app.state.service
            async with service.bank:  # somebody else is there, so all orders have to wait
                async with asyncio.TaskGroup() as group:
                    for number in range(customers):
                        group.create_task(send_orders(client, f"customer-{number}", orders))
                waiting = customers * orders - sum(map(len, service.billed.values()))
                server.should_exit = True  # as its handler of SIGTERM does
        await serving

    assert waiting == customers * orders
    assert sum(service.ordered.values()) == customers * orders
    assert len(service.billed) == customers
    for numbers in service.billed.values():
        assert numbers == list(range(orders))
    print(f"{customers * orders} orders accepted, {waiting} of them still waiting at the stop")
    print("all of them billed, none twice, each customer's in order")


if __name__ == "__main__":
    asyncio.run(main())
