"""`BrokerRef`: how messages get to our actors.

pykka looks whether the actor lives and then puts; an actor that stops in between never answers.
Here putting and looking are one step of the `Mailbox`: a message is either handled or answered with
the reason why the actor is gone. Every ask is answered, by construction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

import pykka
from pykka.messages import _ActorStop

from dmq_actors._runtime.forks import fork_count, forked_error
from dmq_actors._runtime.helping import help_with
from dmq_actors._runtime.here import here
from dmq_actors._runtime.promise import Promise
from dmq_actors.errors import BrokerClosedError, DMQError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._runtime.gate import Gates
    from dmq_actors._runtime.mailbox import Mailbox

A = TypeVar("A", bound=pykka.Actor)
P = ParamSpec("P")
T = TypeVar("T")


class Call:
    """A message: run this method of the actor. Sent by our own code; proxies send `ProxyCall`."""

    __slots__ = ("args", "kwargs", "method")

    def __init__(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.method = method
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return getattr(self.method, "__qualname__", repr(self.method))


class Resume:
    """A message of an actor to itself: go on here, in your own thread."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args

    def __repr__(self) -> str:
        return getattr(self.callback, "__qualname__", repr(self.callback))


class Stop:
    """A message: stop for good, because of this. Only the broker sends it."""

    __slots__ = ("why",)

    def __init__(self, why: Callable[[], DMQError]) -> None:
        self.why = why

    def __repr__(self) -> str:
        return "Stop"


def closed_error() -> DMQError:
    """What a call after the end of the broker gets."""
    return BrokerClosedError("the broker is closed; make a new MessageQueue")


class BrokerRef(pykka.ActorRef[A]):
    """A reference to one of our actors. Thread-safe, as all of pykka's are."""

    def __init__(self, actor: A, gates: Gates) -> None:
        super().__init__(actor)
        self._gates = gates
        self._mailbox = cast("Mailbox", actor.actor_inbox)
        self._proxy: pykka.ActorProxy[A] | None = None
        self._forks = fork_count()
        self.why_gone: Callable[[], DMQError] = closed_error

    # The overloads: a method that answers with a promise is answered by the outcome of that.
    @overload
    def call(
        self, method: Callable[Concatenate[A, P], Promise[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Promise[T]: ...
    @overload
    def call(
        self,
        method: Callable[Concatenate[A, P], T | Promise[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Promise[T]: ...
    @overload
    def call(
        self, method: Callable[Concatenate[A, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Promise[T]: ...
    def call(self, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Promise[Any]:
        """Ask: let the actor run its method, and promise the answer.

        A thread of a user's runs the actor itself, right here, if it is idle; see `helping`. So the
        promise is mostly kept when this returns.
        """
        return self._ask(Call(method, args, kwargs))

    def _ask(self, message: Any) -> Promise[Any]:
        reply = self._new_reply()
        if here.current is None and not here.serves:
            help_with(self.deliver, message, reply)
        else:
            self.deliver(message, reply)
        return reply

    def _new_reply(self) -> Promise[Any]:
        reply: Promise[Any] = Promise()
        reply.gates = self._gates
        return reply

    def send(
        self, method: Callable[Concatenate[A, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Tell: let the actor run its method; a stopped actor is silently left alone."""
        self.deliver(Call(method, args, kwargs), None)

    def resume(self, callback: Callable[P, object], *args: P.args, **_: P.kwargs) -> None:
        """Run a function in the actor's thread; only for the actor's own parts."""
        self.deliver(Resume(callback, args), None)

    def deliver(self, message: Any, reply: Promise[Any] | None) -> None:
        """Put a message into the mailbox, or answer why that is impossible."""
        if self._forks != fork_count():
            if reply is not None:
                reply.fail(forked_error())
            return
        refused = self._mailbox.put((message, reply))
        if refused:
            for envelope in refused:
                self.answer_gone(*envelope)

    def answer_gone(self, message: Any, reply: Promise[Any] | None) -> None:
        """Answer a message that comes after the actor's end."""
        if reply is None:
            return
        if isinstance(message, Stop):
            reply.resolve()
        elif isinstance(message, _ActorStop):
            reply.resolve(value=False)
        else:
            reply.fail(self.why_gone())

    # pykka's own interface, which its proxies use

    def proxy(self) -> pykka.ActorProxy[A]:
        """As pykka's; made once, because looking at all attributes of an actor takes a while."""
        try:
            if self._proxy is None or not self.is_alive():
                self._proxy = super().proxy()
        except pykka.ActorDeadError:
            raise self.why_gone() from None
        return self._proxy

    def tell(self, message: Any) -> None:
        """As pykka's, with a typed error when the actor is stopped."""
        if self._forks != fork_count():
            raise forked_error()
        if not self.is_alive():
            raise self.why_gone()
        self.deliver(message, None)

    @overload
    def ask(
        self, message: Any, *, block: Literal[False], timeout: float | None = None
    ) -> Promise[Any]: ...
    @overload
    def ask(self, message: Any, *, block: Literal[True], timeout: float | None = None) -> Any: ...
    @overload
    def ask(
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any | Promise[Any]: ...
    def ask(
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any | Promise[Any]:
        """As pykka's, with a `Promise` that is always answered."""
        reply = self._ask(message)
        return reply.get(timeout=timeout) if block else reply

    @overload
    def stop(self, *, block: Literal[True], timeout: float | None = None) -> bool: ...
    @overload
    def stop(self, *, block: Literal[False], timeout: float | None = None) -> Promise[bool]: ...
    @overload
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Promise[bool]: ...
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Promise[bool]:
        """As pykka's, but an actor that is stopped like this goes on; see `BrokerActor`."""
        return self.ask(_ActorStop(), block=block, timeout=timeout)
