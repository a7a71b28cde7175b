"""Which partition a key belongs to. Never Python's ``hash()``: it differs between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from zlib import crc32

from dmq_actors.errors import InvalidArgumentError, InvalidTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors.config import Partitioner

_U32 = 0xFFFFFFFF
_MURMUR2_M = 0x5BD1E995
_MURMUR2_SEED = 0x9747B28C


def murmur2(key: bytes) -> int:
    """The 32-bit murmur2 of Kafka's Java client (seed 0x9747b28c), unsigned."""
    h = (_MURMUR2_SEED ^ len(key)) & _U32
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _MURMUR2_M & _U32
        k = (k ^ k >> 24) * _MURMUR2_M & _U32
        h = (h * _MURMUR2_M & _U32) ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _MURMUR2_M & _U32
    h = (h ^ h >> 13) * _MURMUR2_M & _U32
    return h ^ h >> 15


def java_murmur2(key: bytes) -> int:
    """As Kafka's Java client makes murmur2 positive: by dropping the sign bit."""
    return murmur2(key) & 0x7FFFFFFF


KEY_HASHES: dict[str, Callable[[bytes], int]] = {"crc32": crc32, "murmur2": java_murmur2}
"""``hash(key) % num_partitions`` is the partition.

``crc32`` is librdkafka's ``consistent`` partitioner, so that of confluent-kafka for keys;
``murmur2`` is the default of Kafka's Java client.
"""


def check_partitioner(partitioner: object) -> str | Partitioner:
    """The name of a hash, or a function of the user.

    Raises:
        InvalidArgumentError: neither.
    """
    if callable(partitioner):
        return cast("Partitioner", partitioner)
    if isinstance(partitioner, str) and partitioner in KEY_HASHES:
        return partitioner
    wrong = InvalidArgumentError if isinstance(partitioner, str) else InvalidTypeError
    raise wrong(
        f"unknown partitioner {partitioner!r}; use one of {sorted(KEY_HASHES)} "
        "or a function (key: bytes, num_partitions: int) -> int"
    )


def optional_key_bytes(key: str | bytes | None) -> bytes | None:
    """As `key_bytes`; no key stays no key."""
    return None if key is None else key_bytes(key)


def key_bytes(key: object) -> bytes:
    """The bytes that stand for a key: text as UTF-8, bytes as they are.

    Raises:
        InvalidTypeError: neither text nor bytes.
        InvalidArgumentError: text that has no UTF-8 form.
    """
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            raise unencodable_key(error) from error
    if isinstance(key, bytes):
        return key
    raise InvalidTypeError(
        f"a key is str, bytes or None, found {type(key).__name__}; "
        "convert it, for example with str(key)"
    )


def unencodable_key(error: UnicodeEncodeError) -> InvalidArgumentError:
    """The error for text that has no UTF-8 form."""
    return InvalidArgumentError(
        f"key {error.object!r} cannot be encoded as UTF-8 ({error.reason}); "
        "pass the bytes of the key instead"
    )
