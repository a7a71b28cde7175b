"""The names of everything the broker logs: ``noun.verb_past``, with the data in keys.

All go to the standard logger ``dmq_actors``, which is quiet until the host adds a handler. Payloads
are never logged.
"""

from __future__ import annotations

from typing import Final

ACTOR_FAILED: Final = "actor.failed"
"""An actor raised while it handled a message that nobody waits for. Keys: actor, message."""

ACTOR_RESTARTED: Final = "actor.restarted"
"""An actor was stopped from outside, or crashed, and goes on with its state. Keys: actor, cause."""

BROKER_CLOSED: Final = "broker.closed"
"""The broker was closed. Keys: in_flight, still_running."""

CALLBACK_FAILED: Final = "callback.failed"
"""A done-callback of a promise, or of a timer, raised. Keys: callback."""

CONSUMER_EXPELLED: Final = "consumer.expelled"
"""A `Consumer` lost its membership. Keys: group, consumer, cause."""

CONSUMER_UNKNOWN: Final = "consumer.unknown"
"""Somebody polls with an id that is no member; at most once a minute. Keys: group, consumer."""

DEAD_LETTER_STORED: Final = "dead_letter.stored"
"""A message failed too often. Keys: group, topic, partition, offset, failures, error."""

DEAD_LETTER_FAILED: Final = "dead_letter.failed"
"""A dead letter could not be stored; the message stays pending. Keys: as above."""

GROUP_CREATED: Final = "group.created"
"""Keys: group, topic, delivery."""

GROUP_DELETED: Final = "group.deleted"
"""Keys: group, topic."""

GROUP_REBALANCED: Final = "group.rebalanced"
"""A member joined or left. Keys: group, generation, members."""

HANDLER_FAILED: Final = "handler.failed"
"""The handler of a worker pool raised. Keys: group, topic, partition, offset, attempt."""

MESSAGE_DUPLICATED: Final = "message.duplicated"
"""An exactly-once group skipped messages with known ids. Keys: group, partition, count."""

OFFSET_OUT_OF_RANGE: Final = "offset.out_of_range"
"""Retention removed unread messages. Keys: group, topic, partition, position, resumed_at."""

PRODUCER_SEND_FAILED: Final = "producer.send_failed"
"""Messages of a producer failed, and nobody looked at their futures. Keys: topic, error, count."""

TOPIC_CREATED: Final = "topic.created"
"""Keys: topic, partitions."""

TOPIC_DELETED: Final = "topic.deleted"
"""Keys: topic."""

TOPIC_GROWING: Final = "topic.growing"
"""A topic without retention holds 1, 2, 4 … million messages. Keys: topic, messages."""

WORKERS_STOPPED: Final = "workers.stopped"
"""A worker pool ended by itself: a `SystemExit` of its handler, say. Keys: group, cause."""
