"""Every error the broker raises: one tree under `DMQError`.

What the caller got wrong is also a `ValueError` (and a `TypeError` where a type was wrong).
The others tell about the state of the broker, and each message says what to do next.
"""

from __future__ import annotations


class DMQError(Exception):
    """The root: ``except DMQError`` catches whatever the broker can raise."""


class StaleAssignmentError(DMQError):
    """You no longer own this partition: it moved, or you left the group. Poll again."""


class ConsumerExpelledError(StaleAssignmentError):
    """This `Consumer` is no member of its group any more; the message says since when and why.

    Its partitions have other owners, who get what it had not completed. Make a new `Consumer`.
    """


class ConsumerClosedError(DMQError):
    """This `Consumer` was closed. Make a new one."""


class ConcurrentUseError(DMQError, RuntimeError):
    """Two threads, or two tasks, use what belongs to one at a time. Nothing was done.

    Make one `Consumer` for each. A broker with a `SeededScheduler` belongs to one thread.
    """


class BrokerClosedError(DMQError):
    """The broker is closed or closing. Nothing was done; make a new `MessageQueue`."""


class BrokerForkedError(DMQError):
    """This broker was made before ``os.fork()``; its threads live in the parent process only.

    Make a new `MessageQueue` in the child.
    """


class BrokerTimeoutError(DMQError, TimeoutError):
    """The time given ran out. The outcome is unknown: the call may still take effect."""


class NotIdleError(BrokerTimeoutError):
    """``wait_idle`` ended before all was completed; the message says what is left, and where.

    Nothing was changed: wait again, for longer, or see why nobody handles it.
    """


class HandlerFailedError(DMQError):
    """A handler raised something that ``wait_idle`` was not told to expect; it is the cause."""


class ActorCrashedError(DMQError):
    """The actor failed while it handled this call, and was restarted with its state.

    The outcome is unknown: look before you repeat the call.
    """


class BlockingInActorError(DMQError, RuntimeError):
    """`Promise.get` was called on an actor's thread, where waiting could be for ever."""


class ProducerClosedError(DMQError):
    """This `Producer` was closed. The message was not sent; make a new one."""


class QueueFullError(DMQError):
    """There is no room, and there was none within the time given. Nothing was stored."""


class MessageTooLargeError(DMQError):
    """The message alone is larger than the topic may hold. Nothing was stored."""


class OffsetLostError(DMQError):
    """Retention removed messages before this group read them (``on_offset_lost="error"``).

    Seek to where the group shall go on.
    """


class InvalidArgumentError(DMQError, ValueError):
    """An argument has a value that cannot be right. Nothing was changed."""


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument has a type that cannot be right. Nothing was changed."""


class InvalidOffsetError(InvalidArgumentError):
    """An offset is outside the range that the call allows; the message names the range."""


class UnknownTopicError(InvalidArgumentError):
    """There is no such topic. Topics are never created by a typo: call ``create_topic``."""


class TopicExistsError(InvalidArgumentError):
    """There is such a topic already."""


class UnknownPartitionError(InvalidArgumentError):
    """The topic has no such partition; partitions are numbered from 0."""


class UnknownGroupError(InvalidArgumentError):
    """There is no such consumer group, or it was deleted, alone or with its topic."""


class GroupExistsError(InvalidArgumentError):
    """There is such a consumer group already."""


class UnknownConsumerError(InvalidArgumentError, StaleAssignmentError):
    """The group has no such member: it never joined, or it left or was removed."""


class ConsumerExistsError(InvalidArgumentError):
    """The group has a member of this id already; the one that joined first stays."""
