"""`Batch`: messages made ready for the log, in the caller's thread.

All that may run a user's code happens here and not in an actor: copying values, a partitioner of
the user's own. So a bad message fails its caller and nobody else.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from dmq_actors._core.arguments import check_int, show
from dmq_actors._core.partitioners import (
    KEY_HASHES,
    key_bytes,
    optional_key_bytes,
    unencodable_key,
)
from dmq_actors._core.values import IMMUTABLE_TYPES, copy_in, size_of
from dmq_actors.errors import InvalidArgumentError, InvalidTypeError, UnknownPartitionError
from dmq_actors.messages import NO_HEADERS, Headers, Message, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dmq_actors.config import TopicConfig

ROUND_ROBIN = -1
"""Stands for the partition of a message without a key: the coordinator deals it out."""


class Batch(msgspec.Struct):
    """Messages that are ready to be stored.

    * ``messages``: headers frozen, values safe from change.
    * ``partitions``: where each goes, or `ROUND_ROBIN`.
    * ``sizes``: bytes of each, only for a topic with ``retention_bytes``.
    * ``copied``: some value is mutable, so readers must get copies.
    * ``named``: some message brings its own ``message_id``.
    """

    messages: list[Message]
    partitions: list[int]
    sizes: list[int]
    copied: bool
    named: bool

    def chunks(self, size: int) -> Iterator[Batch]:
        """The same messages in batches of at most `size`, in order."""
        for start in range(0, len(self.messages), size):
            places = slice(start, start + size)
            yield Batch(
                self.messages[places],
                self.partitions[places],
                self.sizes[places],
                self.copied,
                self.named,
            )

    def split(self, partitions: Sequence[int]) -> dict[int, tuple[list[int], Batch]]:
        """By partition: the places in this batch, and the smaller batch that goes there."""
        by_partition: defaultdict[int, list[int]] = defaultdict(list)
        for place, partition in enumerate(partitions):
            by_partition[partition].append(place)
        return {
            partition: (
                places,
                Batch(
                    [self.messages[place] for place in places],
                    [],
                    [self.sizes[place] for place in places] if self.sizes else [],
                    self.copied,
                    self.named,
                ),
            )
            for partition, places in by_partition.items()
        }


def prepare(
    config: TopicConfig, messages: Iterable[Message], partition: int | None = None
) -> Batch:
    """Check, copy and route messages for a topic; all of them or none.

    Raises:
        InvalidTypeError: something is not a `Message`, or its key or headers have a wrong type.
        InvalidArgumentError: a value cannot be copied, a key not be encoded, or the user's own
            partitioner answered with something that is no partition.
        UnknownPartitionError: `partition` is outside the topic.
    """
    try:
        given = list(messages)
    except TypeError as error:
        raise InvalidTypeError(
            f"expected several messages, found {type(messages).__name__}; "
            "pass a list of Message, or use publish for a single one"
        ) from error
    batch = Batch(given, [], [], copied=False, named=False)
    if not _are_plain(given):
        batch.messages = [_ready(message, share=config.share_values) for message in given]
        batch.named = any(ready.message_id is not None for ready in batch.messages)
        batch.copied = not config.share_values and any(
            ready.value is not message.value
            for ready, message in zip(batch.messages, given, strict=True)
        )
    batch.partitions = _route(config, batch.messages, partition)
    if config.retention_bytes is not None:
        batch.sizes = [size_of(message) for message in batch.messages]
    return batch


class Ready(msgspec.Struct, gc=False):
    """One message that is ready to be stored; the fields are those of a `Batch`.

    Not tracked by the garbage collector, as a `Batch` with its lists is: there are thousands at a
    time, and walking over them would cost more than making them.
    """

    message: Message
    partition: int
    size: int
    copied: bool
    named: bool


def prepare_one(config: TopicConfig, message: Message, partition: int | None) -> Ready:
    """As `prepare`, for one message that will travel with others."""
    ready, copied = message, False
    if not _are_plain((message,)):
        ready = _ready(message, share=config.share_values)
        copied = not config.share_values and ready.value is not message.value
    key, partitioner = ready.key, config.partitioner
    if type(key) is str and key.isascii() and type(partitioner) is str and partition is None:
        # The usual case, in half the time.
        where = KEY_HASHES[partitioner](key.encode()) % config.num_partitions
    else:
        [where] = _route(config, (ready,), partition)
    size = 0 if config.retention_bytes is None else size_of(ready)
    return Ready(ready, where, size, copied, ready.message_id is not None)


def merge(config: TopicConfig, ready: Sequence[Ready]) -> Batch:
    """One batch of messages that were made ready for the same topic, in order."""
    return Batch(
        [one.message for one in ready],
        [one.partition for one in ready],
        [] if config.retention_bytes is None else [one.size for one in ready],
        copied=True in [one.copied for one in ready],
        named=True in [one.named for one in ready],
    )


def _are_plain(messages: Sequence[Any]) -> bool:
    """Whether all messages can be stored as they are; one loop, for it is run by every publish."""
    for message in messages:
        if (
            type(message) is not Message
            or message.headers is not NO_HEADERS
            or message.message_id is not None
            or type(message.value) not in IMMUTABLE_TYPES
        ):
            return False
    return True


def _route(config: TopicConfig, messages: Sequence[Message], partition: int | None) -> list[int]:
    count, partitioner = config.num_partitions, config.partitioner
    if partition is not None:
        if check_int("partition", partition, minimum=0) >= count:
            raise UnknownPartitionError(
                f"there is no partition {show(partition)}: "
                f"the topic has partitions 0 to {count - 1}"
            )
        for message in messages:
            optional_key_bytes(message.key)
        return [partition] * len(messages)
    if not isinstance(partitioner, str):
        return [
            ROUND_ROBIN
            if message.key is None
            else _checked(partitioner(key_bytes(message.key), count), count)
            for message in messages
        ]
    hash_key = KEY_HASHES[partitioner]
    try:
        return [
            ROUND_ROBIN
            if (key := message.key) is None
            else hash_key(key.encode() if type(key) is str else key_bytes(key)) % count
            for message in messages
        ]
    except UnicodeEncodeError as error:
        raise unencodable_key(error) from error


def check_message(message: object) -> Message:
    """Refuse what is no `Message`.

    Raises:
        InvalidTypeError: it is none.
    """
    if not isinstance(message, Message):
        raise InvalidTypeError(
            f"expected a Message, found {type(message).__name__}; wrap the value: Message(value)"
        )
    return message


def _ready(message: Message, *, share: bool) -> Message:
    check_message(message)
    message_id = None if isinstance(message, StoredMessage) else message.message_id
    if message_id is not None and not (isinstance(message_id, str) and message_id):
        raise InvalidTypeError(f"a message_id is a non-empty str or None, found {message_id!r}")
    value = message.value if share else copy_in(message.value)
    return Message(value, message.key, freeze_headers(message.headers), message_id)


def freeze_headers(headers: object) -> Headers:
    """A read-only copy of a dict of headers; None is no headers.

    Raises:
        InvalidTypeError: not a dict, or a name that is no ``str``, or a value that is none of
            ``str``, ``bytes``, ``None``.
    """
    if headers is None:
        return NO_HEADERS
    if not isinstance(headers, dict):
        raise InvalidTypeError(
            f"headers are a dict of str to str, bytes or None, found {type(headers).__name__}; "
            "a header name can stand only once, so lists of pairs are not taken"
        )
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidTypeError(f"a header name is a str, found {type(name).__name__} {name!r}")
        if value is not None and not isinstance(value, str | bytes):
            raise InvalidTypeError(
                f"header {name!r} must be str, bytes or None, found {type(value).__name__}; "
                "convert it, for example with str(value)"
            )
    if type(headers) is Headers:
        return headers
    return Headers(headers) if headers else NO_HEADERS


def _checked(chosen: object, count: int) -> int:
    if not isinstance(chosen, int) or isinstance(chosen, bool) or not 0 <= chosen < count:
        raise InvalidArgumentError(
            f"the topic's partitioner answered {chosen!r}; "
            f"it must answer an int from 0 to {count - 1}"
        )
    return chosen
