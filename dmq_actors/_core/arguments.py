"""Checks of what callers hand in. Each error says what was found, what was expected, what to do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from dmq_actors.config import DEAD_LETTER_PREFIX
from dmq_actors.errors import InvalidArgumentError, InvalidTypeError
from dmq_actors.messages import DeliveredMessage

E = TypeVar("E", bound=StrEnum)

MAX_NAME_LENGTH = 249
_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def check_name(what: str, name: object) -> str:
    """Kafka's rule for topic names: letters, digits, ``.``, ``_``, ``-``; 1 to 249 of them."""
    if not isinstance(name, str):
        raise InvalidTypeError(f"a {what} is a str, found {type(name).__name__} {show(name)}")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH or name in {".", ".."}:
        raise InvalidArgumentError(
            f"{what} {_shorten(name)} is not valid: use 1 to {MAX_NAME_LENGTH} of the characters "
            "A-Z a-z 0-9 . _ -, and neither '.' nor '..'"
        )
    return name


def check_new_topic_name(name: object) -> str:
    """As `check_name`, and not in the broker's own name space."""
    checked = check_name("topic name", name)
    if checked.startswith(DEAD_LETTER_PREFIX):
        raise InvalidArgumentError(
            f"topic name {checked!r} begins with {DEAD_LETTER_PREFIX!r}, which is kept for "
            "dead-letter topics; they are created by the broker at the first failure"
        )
    return checked


def check_consumer_id(consumer_id: object) -> str:
    """A consumer id: printable text, 1 to 249 characters (a host name and a port, say)."""
    if not isinstance(consumer_id, str):
        raise InvalidTypeError(
            f"a consumer id is a str, found {type(consumer_id).__name__} {show(consumer_id)}"
        )
    if not consumer_id or len(consumer_id) > MAX_NAME_LENGTH or not consumer_id.isprintable():
        raise InvalidArgumentError(
            f"consumer id {_shorten(consumer_id)} is not valid: "
            f"use 1 to {MAX_NAME_LENGTH} printable characters"
        )
    return consumer_id


def check_int(what: str, value: object, *, minimum: int, maximum: int | None = None) -> int:
    """A whole number in a range; a bool is not a number here."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTypeError(f"{what} is an int, found {type(value).__name__} {show(value)}")
    if value < minimum or (maximum is not None and value > maximum):
        upper = "or more" if maximum is None else f"to {maximum}"
        raise InvalidArgumentError(f"{what} must be {minimum} {upper}, found {show(value)}")
    return value


def check_seconds(what: str, value: object, *, above_zero: bool = False) -> float:
    """A duration in seconds: finite, not negative."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidTypeError(
            f"{what} is a number of seconds, found {type(value).__name__} {show(value)}"
        )
    try:
        seconds, found = float(value), show(value)
    except OverflowError:
        seconds, found = math.inf, "an int beyond all floats"
    if not math.isfinite(seconds) or seconds < 0 or (above_zero and seconds == 0):
        lower = "above 0" if above_zero else "0 or more"
        raise InvalidArgumentError(
            f"{what} must be a finite number of seconds, {lower}, found {found}"
        )
    return seconds


def check_limit(what: str, seconds: object) -> float | None:
    """A duration above 0, or None for no limit."""
    return None if seconds is None else check_seconds(what, seconds, above_zero=True)


def check_bool(what: str, value: object) -> bool:
    """True or False, and nothing that merely counts as such."""
    if not isinstance(value, bool):
        raise InvalidTypeError(
            f"{what} is True or False, found {type(value).__name__} {show(value)}"
        )
    return value


def check_offsets(offsets: object) -> dict[int, int]:
    """Offsets by partition, all of them whole numbers from 0; runs the code of a user's mapping."""
    if not isinstance(offsets, Mapping):
        raise InvalidTypeError(
            "offsets are a dict of partition to the next offset to read, "
            f"found {type(offsets).__name__}"
        )
    return {
        check_int("a partition", partition, minimum=0): check_int("an offset", offset, minimum=0)
        for partition, offset in offsets.items()
    }


def check_partitions(partitions: tuple[object, ...]) -> tuple[int, ...]:
    """Partition numbers."""
    return tuple(check_int("a partition", partition, minimum=0) for partition in partitions)


def check_messages(messages: object) -> list[DeliveredMessage]:
    """Messages as ``poll`` returns them; runs the code of a user's iterable."""
    if not isinstance(messages, Iterable):
        raise InvalidTypeError(
            f"expected messages as poll() returns them, in a list, found {type(messages).__name__}"
        )
    return [check_delivered(message) for message in messages]


def check_delivered(message: object) -> DeliveredMessage:
    """A message as ``poll`` returns it."""
    if not isinstance(message, DeliveredMessage):
        raise InvalidTypeError(
            f"expected a message as poll() returns it, found {type(message).__name__}"
        )
    return message


def check_choice(what: str, value: object, choices: type[E]) -> E:
    """One of the values of an enumeration, given as member or as text."""
    names = ", ".join(repr(str(choice)) for choice in choices)
    if not isinstance(value, str):
        raise InvalidTypeError(f"{what} must be one of {names}; found {show(value)}")
    try:
        return choices(value)
    except ValueError:
        raise InvalidArgumentError(f"{what} must be one of {names}; found {show(value)}") from None


def show(value: object) -> str:
    """What an error says of a value, whatever it is."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  # a user's __repr__, an int of too many digits
        return f"a {type(value).__name__} that cannot be shown"


def _shorten(name: str) -> str:
    text = repr(name)
    if len(name) <= MAX_NAME_LENGTH:
        return text
    return f"{text[:40]}…{text[-5:]} ({len(name)} characters)"
