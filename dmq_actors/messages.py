"""The three shapes of a message: handed in, stored, delivered.

All are frozen ``msgspec`` structs: 0.1 µs to make, against 1.4 µs for a frozen dataclass,
and not tracked by the garbage collector, which would otherwise walk the whole log.
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

HeaderValue = str | bytes | None
"""What one header may hold. Kafka allows bytes and null; text is kept as text here."""


class Headers(dict[str, HeaderValue]):
    """A read-only ``dict`` of header names to values.

    It compares equal to a plain ``dict`` with the same items, can be hashed and pickled, and
    raises ``TypeError`` on every attempt to change it, because all readers of a message share it.
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("headers are read-only; build a new dict: {**message.headers, 'name': 'x'}")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # frozen, unlike dict
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[Headers], tuple[dict[str, HeaderValue]]]:
        return (Headers, (dict(self),))

    def __copy__(self) -> Headers:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Headers:
        return self


NO_HEADERS = Headers()


class Message(msgspec.Struct, frozen=True, gc=False):
    """What a producer hands in.

    Args:
        value: any Python object; ``None`` is a value (Kafka calls it a tombstone). Immutable
            built-ins are stored as they are, everything else is copied on the way in and on the
            way out, unless the topic was created with ``share_values=True``.
        key: text, bytes, or ``None`` for no key. Messages with the same key go to the same
            partition and keep their order. Text and its UTF-8 bytes are the same key; ``""`` and
            ``b""`` are keys.
        headers: a dict of ``str`` to ``str``, ``bytes`` or ``None``.
        message_id: text that names this message; ``None`` lets the broker give it a UUID.
            An exactly-once group skips a second message with the id of an earlier one.

    Thread safety: immutable, so safe to share.

    Example:
        >>> Message("23.5", key="sensor-7", headers={"unit": "C"}).key
        'sensor-7'
    """

    value: Any
    key: str | bytes | None = None
    headers: dict[str, HeaderValue] = NO_HEADERS
    message_id: str | None = None


class StoredMessage(Message, frozen=True, gc=False):
    """A message as it stands in the log of a partition.

    Besides the fields of `Message` (``message_id`` is always set here):

    * ``topic``, ``partition``: where it is stored.
    * ``offset``: its position in the partition, from 0, never reused.
    * ``timestamp``: when the broker stored it, float seconds since 1970 UTC. The wall clock may
      jump; order is told by ``offset``, never by ``timestamp``.
    """

    message_id: str = ""
    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp: float = 0.0


class DeliveredMessage(StoredMessage, frozen=True, gc=False):
    """A message as ``poll`` hands it out: the stored one, and which delivery of it this is.

    * ``generation``: the generation of the group when it was delivered.
    * ``delivery_attempt``: 1 for the first delivery to this group, 2 for the second, and so on.
    * ``epoch`` and ``group_incarnation``: tell this delivery from one before a seek, and this
      group from another of the same name; for the broker's own use.

    ``acknowledge`` compares these with what the group knows, and so tells a late acknowledgement
    from a fresh one.
    """

    generation: int = 0
    delivery_attempt: int = 1
    epoch: int = 0
    group_incarnation: int = 0

    def with_value(self, value: Any) -> DeliveredMessage:
        """The same delivery with another value."""
        return msgspec.structs.replace(self, value=value)
