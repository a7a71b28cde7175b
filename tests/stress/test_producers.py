"""Producers that many threads share while their broker or they themselves are closed."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from stress.harness import WATCHDOG, Team, broker_log

from dmq_actors import (
    BrokerClosedError,
    Message,
    MessageQueue,
    ProducerClosedError,
    QueueFullError,
    SendFuture,
)

if TYPE_CHECKING:
    from stress.harness import Rounds

    from dmq_actors import StoredMessage

pytestmark = pytest.mark.stress


def place_of(sent: SendFuture | StoredMessage) -> tuple[int, int]:
    stored = sent.result(0) if isinstance(sent, SendFuture) else sent
    return stored.partition, stored.offset


@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("threads", [1, 4])
def test_what_was_sent_is_stored_once_and_in_order_whoever_closes(
    rounds: Rounds, threads: int
) -> None:
    def one_round(rng: random.Random) -> None:
        sent: dict[str, list[SendFuture | StoredMessage]] = defaultdict(list)
        seed = rng.random()
        mq = MessageQueue(call_timeout=WATCHDOG, actor_threads=threads)
        mq.create_topic("t", 2)
        producer = mq.producer(
            "t",
            linger=rng.choice([0.0, 0.0001, 60.0]),
            batch_size=rng.choice([1, 3, 500]),
            max_in_flight=rng.choice([1, 5, 10_000]),
            max_block=WATCHDOG,
        )

        publishes = rng.choice([0.0, 0.1, 0.5])

        def send(name: str) -> None:
            mind = random.Random(f"{seed}/{name}")
            for number in range(50):
                message = Message((name, number), key=name)
                try:
                    if mind.random() < publishes:  # what was sent before must go first
                        sent[name].append(mq.publish("t", message, timeout=WATCHDOG))
                    else:
                        sent[name].append(producer.send(message))
                except (ProducerClosedError, BrokerClosedError):
                    return
                except QueueFullError as error:
                    raise AssertionError("there was time enough") from error

        with broker_log(), Team() as team:
            for name in ("a", "b", "c"):
                team.start(send, name)
            if rng.random() < 0.5:
                team.start(producer.close)
            if rng.random() < 0.5:
                team.start(producer.flush, WATCHDOG)
            team.join()
            assert producer.close(WATCHDOG) == 0
            places = {name: [place_of(one) for one in found] for name, found in sent.items()}
            assert all(found == sorted(found) for found in places.values())
            distinct = {place for found in places.values() for place in found}
            assert len(distinct) == sum(map(len, places.values()))
            assert mq.get_topic_info("t").message_count == len(distinct)
            mq.close()

    rounds.play(one_round, cases=2)
