"""What a dead letter looks like, and what it was before."""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING

from dmq_actors._core.arguments import MAX_NAME_LENGTH, check_name
from dmq_actors.config import DEAD_LETTER_PREFIX
from dmq_actors.errors import InvalidArgumentError
from dmq_actors.messages import Headers, Message, StoredMessage

if TYPE_CHECKING:
    from dmq_actors._core.progress import Failure


class DeadLetterHeader(StrEnum):
    """The headers the broker adds to a dead letter; all values are text."""

    TOPIC = "dmq-original-topic"
    PARTITION = "dmq-original-partition"
    OFFSET = "dmq-original-offset"
    MESSAGE_ID = "dmq-original-message-id"
    TIMESTAMP = "dmq-original-timestamp"
    """When the original was stored, seconds since 1970 UTC."""

    GROUP = "dmq-group"
    FAILURES = "dmq-failures"
    """How often it failed in that group."""

    ERROR = "dmq-last-error"
    FIRST_FAILED = "dmq-first-failed-at"
    """Seconds since 1970 UTC."""

    LAST_FAILED = "dmq-last-failed-at"
    """Seconds since 1970 UTC."""


REDRIVE_PREFIX = "__redrive_"

_OURS = frozenset(str(header) for header in DeadLetterHeader)


def is_dead_letter_topic(topic: str) -> bool:
    """Whether this topic holds the dead letters of another."""
    return topic.startswith(DEAD_LETTER_PREFIX)


def dead_letter_topic(topic: str) -> str:
    """The topic that takes the dead letters of `topic`."""
    return DEAD_LETTER_PREFIX + topic


def redrive_group(topic: str) -> str:
    """The group that remembers which dead letters of `topic` were redriven."""
    group_id = REDRIVE_PREFIX + topic
    if len(group_id) <= MAX_NAME_LENGTH:
        return group_id
    return REDRIVE_PREFIX + sha256(topic.encode()).hexdigest()


def check_new_group_id(group_id: object, topic: object) -> str:
    """A group's name: as a topic's, and not in the broker's own name space."""
    checked = check_name("group id", group_id)
    if checked.startswith(REDRIVE_PREFIX):
        original = str(topic).removeprefix(DEAD_LETTER_PREFIX)
        if not is_dead_letter_topic(str(topic)) or checked != redrive_group(original):
            raise InvalidArgumentError(
                f"group id {checked!r} begins with {REDRIVE_PREFIX!r}, which is kept for the "
                "groups that remember what was redriven; use another name"
            )
    return checked


def bury(original: StoredMessage, group_id: str, failure: Failure) -> Message:
    """The dead letter of a message: key, value and headers kept, its story in more headers."""
    return Message(
        original.value,
        original.key,
        Headers(
            {
                **original.headers,
                DeadLetterHeader.TOPIC.value: original.topic,
                DeadLetterHeader.PARTITION.value: str(original.partition),
                DeadLetterHeader.OFFSET.value: str(original.offset),
                DeadLetterHeader.MESSAGE_ID.value: original.message_id,
                DeadLetterHeader.TIMESTAMP.value: repr(original.timestamp),
                DeadLetterHeader.GROUP.value: group_id,
                DeadLetterHeader.FAILURES.value: str(failure.count),
                DeadLetterHeader.ERROR.value: failure.error,
                DeadLetterHeader.FIRST_FAILED.value: repr(failure.first),
                DeadLetterHeader.LAST_FAILED.value: repr(failure.last),
            }
        ),
    )


def exhume(message: Message) -> Message:
    """A dead letter, or what was made of one, without the headers that the broker added."""
    headers = {name: value for name, value in message.headers.items() if name not in _OURS}
    message_id = None if isinstance(message, StoredMessage) else message.message_id
    return Message(message.value, message.key, Headers(headers), message_id)
