"""Values go in as copies and come out as copies, so that nobody changes what others read."""

from __future__ import annotations

import copy
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from dmq_actors.errors import InvalidArgumentError

if TYPE_CHECKING:
    from dmq_actors.messages import Message, StoredMessage

M = TypeVar("M", bound="StoredMessage")

IMMUTABLE_TYPES = frozenset(
    {
        str, bytes, int, float, bool, complex, NoneType,
        date, datetime, time, timedelta, timezone, Decimal, Fraction, UUID, range,
    }
)  # fmt: skip
"""Exact types (not subclasses) whose instances are stored as they are."""

_FLAT_BYTES = 8


def copy_in(value: Any) -> Any:
    """A value nobody else can change; the value itself where that is safe.

    Raises:
        InvalidArgumentError: the value refuses to be copied.
    """
    if type(value) in IMMUTABLE_TYPES:
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:  # the user's __deepcopy__ or __reduce__ may raise anything
        raise InvalidArgumentError(
            f"a value of type {type(value).__name__} cannot be copied "
            f"({type(error).__name__}: {error}); publish something that copy.deepcopy accepts, "
            "or create the topic with share_values=True"
        ) from error


def copy_out(messages: list[M]) -> list[M]:
    """The messages with copies of their mutable values."""
    return [
        message
        if type(message.value) in IMMUTABLE_TYPES
        else msgspec.structs.replace(message, value=copy_in(message.value))
        for message in messages
    ]


def size_of(message: Message) -> int:
    """The bytes of key and value: exact for bytes and text, an estimate for other objects.

    Numbers count 8, other objects ``sys.getsizeof``, which does not follow references.
    """
    return _size(message.value) + (_size(message.key) if message.key is not None else 0)


def _size(value: Any) -> int:
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode(errors="surrogatepass"))
    if isinstance(value, int | float | NoneType):
        return _FLAT_BYTES
    return sys.getsizeof(value)
