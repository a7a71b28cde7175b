"""Many promises as one: it is kept when all are, and read by reading them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dmq_actors._runtime.gate import Gates


class Answer(Protocol):
    """What is joined: a `Promise`, as this needs it."""

    gates: Gates

    def when_done(self, callback: Callable[[Any], object], /) -> None:
        """See `Promise.when_done`."""
        ...

    def peek(self) -> Any:
        """See `Promise.peek`."""
        ...

    def get(self, *, timeout: float | None) -> Any:
        """See `Promise.get`."""
        ...

    def abandon(self) -> None:
        """See `Promise.abandon`."""
        ...


class JointAnswer(Answer, Protocol):
    """A `Promise` of all of them."""

    def when_abandoned(self, abandonment: Callable[[], object], /) -> None:
        """See `Promise.when_abandoned`."""
        ...

    def resolve(self, value: Any, finish: Callable[[Any], Any] | None = None, /) -> bool:
        """See `Promise.resolve`."""
        ...

    def fail(self, error: BaseException, /) -> bool:
        """See `Promise.fail`."""
        ...


def settle_when_all_are(joint: JointAnswer, waited_for: Sequence[Answer]) -> None:
    """Answer `joint` with all the answers, or with the first error, when all are done."""
    joint.when_abandoned(partial(_abandon_all, waited_for))
    if not waited_for:
        joint.resolve([])
        return
    joint.gates = waited_for[0].gates
    missing = [None] * len(waited_for)

    def count(_done: Answer) -> None:
        missing.pop()  # a function in C: two threads never count one for two
        if not missing:  # both may see that; the second one settles nothing
            _settle(joint, waited_for)

    for promise in waited_for:
        promise.when_done(count)


def _settle(joint: JointAnswer, done: Sequence[Answer]) -> None:
    try:
        values = [promise.peek() for promise in done]
    except BaseException as error:  # noqa: BLE001  # handed on to the reader
        joint.fail(error)
    else:
        joint.resolve(values, lambda _: [promise.get(timeout=0) for promise in done])


def _abandon_all(promises: Sequence[Answer]) -> None:
    for promise in promises:
        promise.abandon()
