"""From what a caller writes to the checked options of a topic or a group."""

from __future__ import annotations

from typing import cast

from dmq_actors._core.arguments import check_bool, check_choice, check_int, check_seconds
from dmq_actors._core.assignors import resolve_assignor
from dmq_actors._core.partitioners import check_partitioner
from dmq_actors.config import (
    Delivery,
    GroupConfig,
    OnOffsetLost,
    Partitioner,
    RetentionOptions,
    RetryOrder,
    StartFrom,
    TopicConfig,
)
from dmq_actors.errors import InvalidArgumentError, InvalidTypeError

MAX_PARTITIONS = 10_000
"""Each is an actor of some KiB; a mistyped number should not take the machine down."""


def topic_config(
    num_partitions: int,
    *,
    retention_count: int | None = None,
    retention_bytes: int | None = None,
    retention_seconds: float | None = None,
    partitioner: str | Partitioner = "crc32",
    share_values: bool = False,
    dead_letters: RetentionOptions | None = None,
) -> TopicConfig:
    """The options of a topic, checked; what they mean is in `MessageQueue.create_topic`."""
    _check_retention(retention_count, retention_bytes, retention_seconds)
    return TopicConfig(
        check_int("num_partitions", num_partitions, minimum=1, maximum=MAX_PARTITIONS),
        retention_count,
        retention_bytes,
        retention_seconds,
        check_partitioner(partitioner),
        check_bool("share_values", share_values),
        _dead_letter_options(dead_letters),
    )


def _check_retention(count: object, size_bytes: object, seconds: object) -> None:
    if count is not None:
        check_int("retention_count", count, minimum=1)
    if size_bytes is not None:
        check_int("retention_bytes", size_bytes, minimum=1)
    if seconds is not None:
        check_seconds("retention_seconds", seconds, above_zero=True)


def _dead_letter_options(options: object) -> RetentionOptions | None:
    if options is None:
        return None
    names = RetentionOptions.__annotations__
    if not isinstance(options, dict) or not options.keys() <= names.keys():
        wrong = InvalidArgumentError if isinstance(options, dict) else InvalidTypeError
        raise wrong(f"dead_letters is a dict with any of {sorted(names)}; found {options!r}")
    _check_retention(*(options.get(name) for name in names))
    return cast("RetentionOptions", dict(options))


def group_config(
    delivery: str = Delivery.AT_LEAST_ONCE,
    *,
    start_from: str = StartFrom.EARLIEST,
    assignor: str = "modular",
    max_failures: int = 3,
    retry_backoff: float = 0.0,
    retry_backoff_max: float = 60.0,
    retry_order: str = RetryOrder.KEY,
    on_offset_lost: str = OnOffsetLost.EARLIEST,
) -> GroupConfig:
    """The options of a group, checked; their meaning is in `MessageQueue.create_consumer_group`."""
    resolve_assignor(assignor)
    return GroupConfig(
        check_choice("delivery", delivery, Delivery),
        check_choice("start_from", start_from, StartFrom),
        assignor,
        check_int("max_failures", max_failures, minimum=1),
        check_seconds("retry_backoff", retry_backoff),
        check_seconds("retry_backoff_max", retry_backoff_max),
        check_choice("retry_order", retry_order, RetryOrder),
        check_choice("on_offset_lost", on_offset_lost, OnOffsetLost),
    )
