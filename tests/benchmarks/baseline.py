"""What we are measured against: the simplest queue one would write, and a bare actor."""

from __future__ import annotations

import time
import uuid
import zlib
from dataclasses import dataclass, field
from typing import Any

from dmq_actors._runtime.base import BrokerActor


@dataclass(frozen=True)
class PlainMessage:
    value: Any
    key: str | None
    topic: str
    partition: int
    offset: int
    timestamp: float
    message_id: str
    headers: dict[str, str] = field(default_factory=dict)


class PlainQueue:
    """Lists and no locks: one thread only, no groups, no retention, nothing is ever copied."""

    def __init__(self, num_partitions: int) -> None:
        self._partitions: list[list[PlainMessage]] = [[] for _ in range(num_partitions)]

    def publish(self, topic: str, value: Any, key: str) -> PlainMessage:
        partition = zlib.crc32(key.encode()) % len(self._partitions)
        log = self._partitions[partition]
        message = PlainMessage(
            value, key, topic, partition, len(log), time.time(), str(uuid.uuid4())
        )
        log.append(message)
        return message


class EchoActor(BrokerActor):
    """The least an actor can do: a bare ask on our own mailbox and promise."""

    def echo(self) -> int:
        return 1
