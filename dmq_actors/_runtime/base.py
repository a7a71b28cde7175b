"""`BrokerActor`: what all our actors have in common.

* It never waits. `_then` turns the answer of another actor into a message to itself.
* It never dies of a message. An exception becomes the caller's error, or a logged event.
* It stops only when the broker says so. A stop from outside (``ActorRegistry.stop_all()``), a
  ``SystemExit``: it goes on with the same mailbox and the same state, so nothing in either is lost,
  and references and proxies stay good. That is all there is to restarting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

import pykka
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop

from dmq_actors import events
from dmq_actors._runtime.failures import safe_repr
from dmq_actors._runtime.filtered_mailbox import FilteredMailbox
from dmq_actors._runtime.log import log
from dmq_actors._runtime.mailbox import Mailbox
from dmq_actors._runtime.promise import Promise
from dmq_actors._runtime.ref import Call, Resume, Stop
from dmq_actors._runtime.runner import Runner
from dmq_actors.errors import ActorCrashedError, DMQError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka._actor import ActorInbox

    from dmq_actors._runtime.ref import BrokerRef
    from dmq_actors._runtime.scheduler import Scheduler

A = TypeVar("A", bound="BrokerActor")
P = ParamSpec("P")
T = TypeVar("T")

FORWARDED = object()
"""What a method returns after `_forward`: somebody else answers."""


class BrokerActor(pykka.Actor):
    """The base of our actors: a pykka actor that runs on a `Scheduler`.

    Public methods are the protocol: they run one at a time, and are reached through
    `BrokerRef.call` and through pykka proxies alike. A method may return a `Promise`; the caller is
    answered when that is.
    """

    def __init__(self, name: str, dispatcher: Scheduler) -> None:
        super().__init__()
        self._name = name
        self._dispatcher = dispatcher
        self._restarts = 0
        self._reply: Promise[Any] | None = None
        self._owed: set[Promise[Any]] = set()
        if dispatcher.filters:
            self.actor_inbox = cast("ActorInbox", FilteredMailbox(name, dispatcher.filters))
        self._mailbox = cast("Mailbox", self.actor_inbox)
        self._actor_ref = dispatcher.new_ref(self)

    @classmethod
    def spawn(cls, *args: Any) -> BrokerRef[Self]:
        """Start the actor; as pykka's ``start``, with our own kind of reference."""
        return cast("BrokerRef[Self]", cls.start(*args))

    def __str__(self) -> str:
        return self._name

    @property
    def _ref(self) -> BrokerRef[Self]:
        return cast("BrokerRef[Self]", self._actor_ref)

    # Hooks

    def _on_restart(self) -> None:
        """The message in hand was lost: make good what depended on it."""

    def _on_stop(self, why: Callable[[], DMQError]) -> Any:  # noqa: ARG002  # for subclasses
        """The broker stops this actor: answer whoever waits. Returns the answer to the stop."""
        return None

    # Tools for subclasses

    def _forward(
        self,
        ref: BrokerRef[A],
        method: Callable[Concatenate[A, P], T | Promise[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Let another actor answer our caller: one promise, however many actors it passes."""
        ref.deliver(Call(method, args, kwargs), self._reply)
        return cast("T", FORWARDED)

    def _then(self, promise: Promise[Any], callback: Callable[..., object], *args: Any) -> None:
        """Run ``callback(promise, *args)`` in this actor when the promise is done."""
        ref = self._ref
        promise.when_done(lambda done: ref.resume(callback, done, *args))

    def _after(self, promise: Promise[Any], callback: Callable[..., T], *args: Any) -> Promise[T]:
        """A promise of ``callback(answer, *args)``, run in this actor when `promise` is done.

        It is answered in any case: by an error, by this actor's restart or its end.
        """
        owed = self._owe()
        self._then(promise, self._keep, owed, callback, args)
        return owed

    def _owe(self) -> Promise[Any]:
        """A promise that is answered at the latest by this actor's restart or its end."""
        owed: Promise[Any] = Promise()
        self._owed.add(owed)
        owed.when_done(self._owed.discard)
        return owed

    def _keep(
        self, promise: Promise[Any], owed: Promise[T], callback: Callable[..., T], args: Any
    ) -> None:
        if owed.done():
            return
        try:
            owed.resolve(callback(promise.peek(), *args))
        except Exception as error:  # noqa: BLE001  # the caller's error
            owed.fail(error)

    def _default(self, error: DMQError) -> None:
        for promise in list(self._owed):
            promise.fail(error)

    # pykka's hooks for new actor types

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        return cast("ActorInbox", Mailbox())

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return Promise()

    def _start_actor_loop(self) -> None:
        runner = Runner(self, self._mailbox, self._dispatcher, self._handle, self._hit)
        self._mailbox.open(runner.schedule)

    # Running

    def _handle(self, message: Any, reply: Promise[Any] | None) -> BaseException | None:
        """Handle one message; answers what its thread was hit by and this actor survived."""
        self._reply = reply
        try:
            result = self._perform(message)
            if reply is not None and result is not FORWARDED:
                if isinstance(result, Promise):
                    result.pipe_to(reply)
                else:
                    reply.resolve(result)
        except Exception as error:  # noqa: BLE001  # the caller's error, or a logged one
            self._report(message, reply, error)
        except BaseException as error:  # noqa: BLE001  # a SystemExit must not stop other actors
            lost = ActorCrashedError(
                f"{self._name} was hit by {error!r} and restarted; the outcome is unknown"
            )
            lost.__cause__ = error
            self._report(message, reply, lost)
            self._restart(error)
            # A Ctrl-C, say, is for the thread. A SystemExit is the caller's error already.
            return None if isinstance(error, SystemExit) else error
        finally:
            self._reply = None
        return None

    def _hit(self, error: BaseException) -> None:
        """Thrown in from outside, between two messages."""
        self._dispatcher.failures.note(self._name, "between two messages", error)
        self._restart(error)

    def _perform(self, message: Any) -> Any:
        kind = type(message)
        if kind is Call:
            return message.method(self, *message.args, **message.kwargs)
        if kind is Resume:
            return message.callback(*message.args)
        if kind is ProxyCall:
            return self._public(message.attr_path)(*message.args, **message.kwargs)
        if kind is Stop:
            return self._end(message.why)
        if kind is _ActorStop:  # of pykka's
            self._restarts += 1  # and nothing was lost
            log.warning(events.ACTOR_RESTARTED, actor=self._name, cause="stopped from outside")
            return True
        if kind is ProxyGetAttr:
            return self._public(message.attr_path)
        if kind is ProxySetAttr:
            raise InvalidArgumentError(f"the attributes of {self._name} cannot be set")
        raise InvalidArgumentError(
            f"{self._name} does not understand {kind.__name__}; call its methods"
        )

    def _public(self, path: tuple[str, ...]) -> Any:
        if len(path) != 1 or path[0].startswith("_"):
            raise InvalidArgumentError(f"{self._name} has no public {'.'.join(path)!r}")
        return getattr(self, path[0])

    def _end(self, why: Callable[[], DMQError]) -> Any:
        self._ref.why_gone = why
        try:
            return self._on_stop(why)
        finally:
            self._default(why())
            self.actor_stopped.set()
            pykka.ActorRegistry.unregister(self.actor_ref)
            for message, reply in self._mailbox.close():
                self._ref.answer_gone(message, reply)

    def _report(self, message: Any, reply: Promise[Any] | None, error: BaseException) -> None:
        told = reply is not None and reply.fail(error)
        if not told:
            self._dispatcher.failures.note(self._name, message, error)
        if not told or not isinstance(error, DMQError | TypeError):
            log.error(
                events.ACTOR_FAILED,
                actor=self._name,
                message=safe_repr(message)[:200],
                exc_info=error,
            )

    def _restart(self, hit_by: BaseException) -> None:
        cause = repr(hit_by)
        self._restarts += 1
        self._dispatcher.survived(hit_by)
        log.warning(events.ACTOR_RESTARTED, actor=self._name, cause=cause)
        # Which of these the lost message would have kept, nobody knows.
        self._default(
            ActorCrashedError(f"{self._name} was restarted ({cause}); the outcome is unknown")
        )
        try:
            self._on_restart()
        except Exception as error:  # noqa: BLE001  # a restart that fails must not end the actor
            self._report("restart", None, error)
