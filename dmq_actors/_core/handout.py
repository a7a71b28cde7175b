"""What is handed to one member: runs of stored messages, and which delivery of them this is.

The actor decides *which*; the objects that a reader holds are made in the reader's own thread.
There they stay in the cache of the core that will read and free them, and the actor is free sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dmq_actors._core.values import copy_out
from dmq_actors.messages import DeliveredMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dmq_actors.messages import StoredMessage


class Handout(NamedTuple):
    """One delivery: to whom, in which generation, the how-manieth."""

    owner: str
    generation: int
    attempt: int
    epoch: int
    """The epoch of the partition's progress: tells a delivery after a seek from one before it."""

    nacked: bool = False
    """Whether this delivery has failed, so that the owner is done with it."""


class Piece(NamedTuple):
    """Messages of one partition, in offset order, that were handed out alike."""

    messages: list[StoredMessage]
    handout: Handout
    incarnation: int


def unstamp(messages: Iterable[DeliveredMessage], owner: str) -> list[Piece]:
    """The pieces these messages were handed out in, the last one first: to be given back."""
    pieces: list[Piece] = []
    for m in messages:
        handout = Handout(owner, m.generation, m.delivery_attempt, m.epoch)
        alike = pieces and pieces[-1][1:] == (handout, m.group_incarnation)
        if alike and pieces[-1].messages[-1].partition == m.partition:
            pieces[-1].messages.append(m)
        else:
            pieces.append(Piece([m], handout, m.group_incarnation))
    return pieces[::-1]


def stamp(pieces: Iterable[Piece], *, copied: bool) -> list[DeliveredMessage]:
    """The messages as the reader gets them; with `copied`, mutable values are copied."""
    delivered: list[DeliveredMessage] = []
    for messages, (_, generation, attempt, epoch, _), incarnation in pieces:
        delivered += [
            DeliveredMessage(
                m.value, m.key, m.headers, m.message_id, m.topic, m.partition, m.offset,
                m.timestamp, generation, attempt, epoch, incarnation,
            )
            for m in messages
        ]  # fmt: skip
    return copy_out(delivered) if copied else delivered
