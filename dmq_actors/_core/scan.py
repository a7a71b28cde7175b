"""Reading ahead: which offsets a group wants of a partition, and which of those it hands out.

Two steps, because the messages live with the partition: `plan` names ranges of offsets, the
partition answers with what it has of them, `deliver` decides message by message. In between the
state may have moved on, so `deliver` trusts only what it sees now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dmq_actors._core.handout import Handout, Piece
from dmq_actors._core.partitioners import optional_key_bytes
from dmq_actors.config import Delivery, OnOffsetLost
from dmq_actors.errors import OffsetLostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dmq_actors._core.dedupe import MessageIdIndex
    from dmq_actors._core.progress import Progress
    from dmq_actors.messages import StoredMessage

Range = tuple[int, int]


class Fetched(NamedTuple):
    """What a partition answers to a fetch."""

    messages: list[StoredMessage]
    base_offset: int
    next_offset: int
    holds_copies: bool
    named: dict[int, str]
    """The ids that producers gave themselves, by offset."""

    watched: bool
    """Whether the partition will tell the group of the next message it gets."""


class Reader(NamedTuple):
    """For whom `deliver` hands out."""

    consumer_id: str
    generation: int
    incarnation: int


class Handed(NamedTuple):
    """What `deliver` hands out, and what was lost before it: [from, to) by retention."""

    pieces: list[Piece]
    lost: Range | None = None
    duplicates: int = 0


def available(progress: Progress, room: int, now: float) -> int | None:
    """How many messages a fetch will find at least; None when there is nothing to fetch."""
    ready = len(progress.retries.ready(now, room)) if progress.retries else 0
    if progress.retries.closes_partition:
        return ready or None
    ahead = max(progress.known_end - progress.position, 0)
    return ready + ahead if ready or ahead or not progress.watched else None


def plan(progress: Progress, room: int, now: float) -> list[Range]:
    """The ranges to fetch, in order, `room` offsets at most."""
    ranges: list[Range] = []
    for offset in progress.retries.ready(now, room) if progress.retries else ():
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    if progress.retries.closes_partition:
        return ranges
    room -= sum(end - start for start, end in ranges)
    for start, end in _unread(progress, room):
        ranges.append((start, end))
    return ranges


def _unread(progress: Progress, room: int) -> Iterator[Range]:
    known = max(progress.completed.end, progress.in_flight.end, progress.position)
    for start, end in progress.unread_below(known):
        if room <= 0:
            return
        yield start, min(end, start + room)
        room -= end - start
    if room > 0:
        yield known, known + room


def deliver(
    progress: Progress,
    fetched: Fetched,
    room: int,
    now: float,
    reader: Reader,
    seen_ids: MessageIdIndex | None,
) -> Handed:
    """Hand out up to `room` of the fetched messages and move the position past them.

    Raises:
        OffsetLostError: retention took what comes next and the group wants to be told.
    """
    progress.known_end = max(progress.known_end, fetched.next_offset)
    lost = _skip_lost(progress, fetched)
    if seen_ids is not None:
        seen_ids.evict_below(progress.partition, fetched.base_offset)
    duplicates = 0
    fast = _is_plain(progress, fetched)
    if fast:
        chosen = fetched.messages[:room]
        if chosen:
            progress.position = chosen[-1].offset + 1
    else:
        chosen = []
        for message in fetched.messages:
            if len(chosen) == room:
                break
            if _is_duplicate(progress, message, fetched, seen_ids):
                progress.complete(message.offset, message.offset + 1)
                duplicates += 1
            elif _may_go(progress, message, now):
                chosen.append(message)
        if not progress.retries.closes_partition:
            _skip_known(progress)
    handed = _hand_out(progress, chosen, reader)
    if handed and progress.config.delivery is Delivery.AT_MOST_ONCE:
        progress.complete(progress.committed, progress.position)
        progress.skipped.clear()
    return Handed(handed, lost, duplicates)


def _is_plain(progress: Progress, fetched: Fetched) -> bool:
    """Whether all that was fetched follows the position without anything to look up."""
    return not (
        progress.retries
        or progress.failures
        or progress.burying
        or fetched.named
        or progress.completed.end > progress.position
        or progress.in_flight.end > progress.position
        or (fetched.messages and fetched.messages[0].offset != progress.position)
    )


def _may_go(progress: Progress, message: StoredMessage, now: float) -> bool:
    """Whether this message is handed out now; moves the position past it if it is looked at."""
    offset = message.offset
    if offset < progress.position:
        ready = progress.retries.is_ready(offset, now)
        if ready:
            progress.retries.take(offset)
        return ready
    if progress.retries.closes_partition:
        return False
    progress.position = offset + 1
    handout = progress.in_flight.get(offset)
    in_hand = handout is not None and not handout.nacked
    if in_hand or offset in progress.completed or offset in progress.burying:
        return False
    key = optional_key_bytes(message.key)
    failure = progress.failures.get(offset)
    if failure is not None and failure.due > now:
        progress.retries.wait(offset, key, failure.due)
        return False
    return not (progress.retries and progress.retries.hold(offset, key))


def _is_duplicate(
    progress: Progress,
    message: StoredMessage,
    fetched: Fetched,
    seen_ids: MessageIdIndex | None,
) -> bool:
    return (
        seen_ids is not None
        and message.offset in fetched.named
        and message.offset not in progress.completed
        and seen_ids.is_duplicate(message.message_id, progress.partition, message.offset)
    )


def _skip_known(progress: Progress) -> None:
    """Move the position over what needs no delivery, so that it tells the next one that does."""
    known = max(progress.completed.end, progress.in_flight.end, progress.position)
    first = next(progress.unread_below(known), None)
    progress.position = known if first is None else first[0]


def _hand_out(progress: Progress, chosen: list[StoredMessage], reader: Reader) -> list[Piece]:
    owner, generation, incarnation = reader
    pieces: list[Piece] = []
    start = 0
    while start < len(chosen):
        first = chosen[start].offset
        attempt, end = _attempt(progress, first), start + 1
        if first >= max(progress.attempts.end, progress.in_flight.end):
            end = len(chosen)  # ahead of all deliveries so far: each is the first
        else:
            while end < len(chosen) and _attempt(progress, chosen[end].offset) == attempt:
                end += 1
        handout = Handout(owner, generation, attempt, progress.epoch)
        piece = Piece(chosen[start:end], handout, incarnation)
        if progress.config.delivery is not Delivery.AT_MOST_ONCE:
            _note(progress, piece)
        pieces.append(piece)
        start = end
    return pieces


def _note(progress: Progress, piece: Piece) -> None:
    first, last = piece.messages[0].offset, piece.messages[-1].offset
    if last - first + 1 == len(piece.messages):
        progress.in_flight.set(first, last + 1, piece.handout)
        return
    for message in piece.messages:
        progress.in_flight.set(message.offset, message.offset + 1, piece.handout)


def _attempt(progress: Progress, offset: int) -> int:
    handout = progress.in_flight.get(offset)
    return 1 + (handout.attempt if handout else progress.attempts.get(offset) or 0)


def _skip_lost(progress: Progress, fetched: Fetched) -> Range | None:
    """Deal with what retention removed before it was read."""
    base = fetched.base_offset
    gone = [offset for offset in progress.retries.between(0, base) if offset < base]
    for offset in gone:
        progress.skipped_total += 1
        progress.complete(offset, offset + 1)
    if progress.position >= base:
        return None
    start, policy = progress.position, progress.config.on_offset_lost
    if next(progress.unread_below(base), None) is None:
        progress.position = base
        return None
    if policy is OnOffsetLost.ERROR:
        raise OffsetLostError(
            f"offsets {start} to {base - 1} of partition {progress.partition} were removed by "
            f"retention before this group read them; seek to {base} (BEGINNING) or later to go on"
        )
    end = fetched.next_offset if policy is OnOffsetLost.LATEST else base
    progress.lose(end)
    return start, end
