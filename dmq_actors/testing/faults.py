"""`Faults`: what shall go wrong in the actors of a broker, and when."""

from __future__ import annotations

import threading
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from dmq_actors._core.arguments import check_int, check_seconds
from dmq_actors._runtime.filtered_mailbox import name_of
from dmq_actors._runtime.promise import Promise
from dmq_actors._runtime.ref import Call
from dmq_actors.errors import InvalidTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.filtered_mailbox import Filter, FilteredMailbox
    from dmq_actors._runtime.mailbox import Envelope
    from dmq_actors.message_queue import MessageQueue

    Effect = Callable[[Clock, FilteredMailbox, Envelope], Envelope | None]

_HELPER_TIMEOUT = 10.0


class FaultRule:
    """One rule of `Faults`: which messages it hits, and how many it has hit. Thread-safe."""

    def __init__(
        self, actor: str, message: str, effect: Effect, times: int | None, after: int
    ) -> None:
        for name, text in (("actor", actor), ("message", message)):
            if not isinstance(text, str):
                raise InvalidTypeError(f"{name} is a pattern, found {type(text).__name__}")
        self.actor = actor
        self.message = message
        self.effect = effect
        self._left = None if times is None else check_int("times", times, minimum=1)
        self._after = check_int("after", after, minimum=0)
        self._lock = threading.Lock()
        self._hits = 0

    @property
    def hits(self) -> int:
        """How many messages it has hit."""
        with self._lock:
            return self._hits

    def cancel(self) -> None:
        """Hit nothing from now on. Messages that are delayed still come."""
        with self._lock:
            self._left = 0

    def strikes(self, actor: str, message: str) -> bool:
        """Whether this message is one to hit; counts it."""
        if not fnmatchcase(actor, self.actor) or not fnmatchcase(message, self.message):
            return False
        if message.startswith("_") and not self.message.startswith("_"):
            return False
        with self._lock:
            if self._left == 0:
                return False
            if self._after > 0:
                self._after -= 1
                return False
            if self._left is not None:
                self._left -= 1
            self._hits += 1
            return True


class Faults:
    """Rules for what goes wrong: ``MessageQueue(faults=faults)``.

    All rules take two patterns, as `fnmatch` has them: the name of the actor (``"coordinator"``,
    ``"group-*"``, ``"partition-orders-0"``) and the name of the method that the message calls
    (``"publish"``, ``"append*"``, ``"poll"``, ``"fetch"``). A single publish reaches its partition
    as ``append_one``. Names with an underscore in front, messages of an actor to itself, are hit
    only by patterns that have one, too; they may change from version to version.

    ``times`` is how many messages are hit (None: all), ``after`` how many are let pass before. The
    first rule that fits decides. Rules may be added and cancelled at any time.

    Thread safety:
        Every method may be called from any thread.

    Example:
        >>> faults = Faults()
        >>> with MessageQueue(faults=faults) as mq:
        ...     _ = mq.create_topic("t")
        ...     rule = faults.fail("partition-t-*", "append*", error=OSError("disk full"))
        ...     try:
        ...         _ = mq.publish("t", Message(1))
        ...     except OSError as error:
        ...         print(error)
        ...     stored = mq.publish("t", Message(2))
        disk full
        >>> rule.hits, stored.offset
        (1, 0)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: tuple[FaultRule, ...] = ()

    def fail(
        self,
        actor: str,
        message: str,
        *,
        error: BaseException,
        times: int | None = 1,
        after: int = 0,
    ) -> FaultRule:
        """Let the message raise this error in place of being handled.

        Its caller gets the error; if it has none, the actor has failed
        (`MessageQueue.take_actor_failures`).
        """
        if not isinstance(error, Exception):
            raise InvalidTypeError(
                f"error is an instance of Exception, found {error!r}; to end an actor use kill()"
            )
        return self._add(FaultRule(actor, message, partial(_raise, error), times, after))

    def kill(
        self, actor: str, message: str = "*", *, times: int | None = 1, after: int = 0
    ) -> FaultRule:
        """Let a ``SystemExit`` hit the actor in place of the message.

        The actor is restarted in place, with its state and the other messages. The caller of this
        message, and whoever waits for something that hung on it, gets `ActorCrashedError`.
        """
        effect = partial(_raise, SystemExit("killed by Faults"))
        return self._add(FaultRule(actor, message, effect, times, after))

    def drop(self, actor: str, message: str, *, times: int | None = 1, after: int = 0) -> FaultRule:
        """Let the message get lost.

        Its caller gets `BrokerTimeoutError` when its time is up, or learns that the broker, topic
        or group is gone, whichever is first. A message between actors, such as ``fetch``, leaves
        what hangs on it undone (the polls of one consumer, say) until the actor that sent it is
        restarted; see `kill`. No message of a topic is ever lost by it.
        """
        return self._add(FaultRule(actor, message, _drop, times, after))

    def delay(
        self, actor: str, message: str, *, seconds: float, times: int | None = 1, after: int = 0
    ) -> FaultRule:
        """Let the message come later; those behind it overtake it.

        Args:
            actor: a pattern, see above.
            message: a pattern, see above.
            seconds: 0 or more, on the clock of the broker.
            times: how many messages; None for all.
            after: how many pass before.
        """
        effect = partial(_delay, check_seconds("seconds", seconds))
        return self._add(FaultRule(actor, message, effect, times, after))

    def duplicate(
        self, actor: str, message: str, *, times: int | None = 1, after: int = 0
    ) -> FaultRule:
        """Let the message be handled twice; the second answer goes to nobody."""
        return self._add(FaultRule(actor, message, _duplicate, times, after))

    def cancel_all(self) -> None:
        """Cancel all rules."""
        with self._lock:
            rules, self._rules = self._rules, ()
        for rule in rules:
            rule.cancel()

    def new_filter(self, clock: Clock) -> Filter:
        """For `MessageQueue`: what decides about each message of a broker with this clock."""
        return partial(self._decide, clock)

    def _add(self, rule: FaultRule) -> FaultRule:
        with self._lock:
            self._rules = (*self._rules, rule)
        return rule

    def _decide(
        self, clock: Clock, mailbox: FilteredMailbox, envelope: Envelope
    ) -> Envelope | None:
        with self._lock:
            rules = self._rules
        name = name_of(envelope[0])
        for rule in rules:
            if name is not None and rule.strikes(mailbox.owner, name):
                return rule.effect(clock, mailbox, envelope)
        return envelope


def _raise(
    error: BaseException, _clock: Clock, _mailbox: FilteredMailbox, envelope: Envelope
) -> Envelope:
    message, reply = envelope

    def fail(_actor: Any) -> None:
        raise error

    fail.__qualname__ = f"{message!r} (hit by Faults)"  # for reports
    return Call(fail, (), {}), reply


def _drop(_clock: Clock, mailbox: FilteredMailbox, envelope: Envelope) -> None:
    mailbox.hold(envelope)  # for good


def _delay(seconds: float, clock: Clock, mailbox: FilteredMailbox, envelope: Envelope) -> None:
    mailbox.hold(envelope)
    clock.call_at(clock.monotonic() + seconds, partial(mailbox.release, envelope))


def _duplicate(_clock: Clock, mailbox: FilteredMailbox, envelope: Envelope) -> Envelope:
    message, reply = envelope
    mailbox.put_passed((message, None if reply is None else Promise()))
    return envelope


def expire_member(mq: MessageQueue, group_id: str, consumer_id: str) -> dict[str, list[int]]:
    """Expel a member of a group, as if it had been silent for too long.

    Its waiting polls end, its partitions and what it had in flight go to the other members, its
    late acknowledgements are `AckResult.STALE`.

    Args:
        mq: the broker.
        group_id: an existing group.
        consumer_id: a member of it.

    Returns:
        The new assignments.

    Raises:
        UnknownGroupError, UnknownConsumerError: there is no such group or member.

    Thread safety:
        Any thread may call it.

    Example:
        >>> with MessageQueue() as mq:
        ...     _ = mq.create_topic("t", 2)
        ...     mq.create_consumer_group("g", "t")
        ...     _ = mq.add_consumer("g", "a"), mq.add_consumer("g", "b")
        ...     expire_member(mq, "g", "a")
        {'b': [0, 1]}
    """
    return mq.group_actor(group_id).expire_member(consumer_id).get(timeout=_HELPER_TIMEOUT)


def force_rebalance(mq: MessageQueue, group_id: str) -> dict[str, list[int]]:
    """Take all partitions away from the members of a group and deal them out anew.

    The members stay the same; the generation grows by one. What was in flight is delivered again,
    and acknowledgements of the deliveries before are `AckResult.STALE`. Waiting polls end.

    Args:
        mq: the broker.
        group_id: an existing group.

    Returns:
        The new assignments.

    Raises:
        UnknownGroupError: there is no such group.

    Thread safety:
        Any thread may call it.

    Example:
        >>> with MessageQueue() as mq:
        ...     _ = mq.create_topic("t")
        ...     mq.create_consumer_group("g", "t")
        ...     _ = mq.add_consumer("g", "a"), mq.publish("t", Message("m"))
        ...     [before] = mq.poll("g", "a")
        ...     owners = force_rebalance(mq, "g")
        ...     [after] = mq.poll("g", "a")
        ...     print(owners, mq.acknowledge("g", before), mq.acknowledge("g", after))
        {'a': [0]} stale completed
    """
    return mq.group_actor(group_id).force_rebalance().get(timeout=_HELPER_TIMEOUT)
