"""Backpressure: what a producer does when it is faster than its broker.

At most ``max_in_flight`` messages may be sent and not stored. The next ``send`` waits for room, up
to ``max_block`` seconds, and then raises `QueueFullError`: nothing was sent, so waiting for earlier
futures and sending the same message again is safe.

Run it with ``python examples/backpressure.py``.
"""

import asyncio

from dmq_actors import Message, MessageQueue, Producer, QueueFullError

MESSAGES, BOUND = 1_000, 50


def send_and_wait_for_room(producer: Producer) -> None:
    """In a thread nothing needs to be done: `send` waits for room."""
    for number in range(MESSAGES):
        producer.send(Message(number, key="thread"))
        assert producer.in_flight <= BOUND


async def send_in_a_loop(producer: Producer) -> int:
    """An event loop must not wait in `send`: it gets the error, and awaits what it sent before."""
    full, pending = 0, []
    for number in range(MESSAGES):
        message = Message(number, key="loop")
        try:
            pending.append(producer.send(message))
        except QueueFullError:
            full += 1
            await asyncio.gather(*pending)
            pending = [producer.send(message)]
    await asyncio.gather(*pending)
    return full


def main() -> None:
    """Send twice, in a thread and in an event loop, with little room."""
    with MessageQueue() as mq:
        mq.create_topic("t", 2)
        with mq.producer("t", max_in_flight=BOUND) as producer:
            send_and_wait_for_room(producer)
            producer.flush()
            full = asyncio.run(send_in_a_loop(producer))
        stored = mq.get_topic_info("t").message_count
    assert stored == 2 * MESSAGES
    print(f"{stored} messages stored, never more than {BOUND} in flight; full {full} times")


if __name__ == "__main__":
    main()
