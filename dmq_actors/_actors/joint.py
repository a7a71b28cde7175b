"""Many promises as one: it is kept when all are, and read by reading them."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmq_actors._actors.promise import Promise


def settle_when_all_are(joint: Promise[list[Any]], waited_for: list[Promise[Any]]) -> None:
    """Answer `joint` with all the answers, or with the first error, when all are done."""
    joint.when_abandoned(partial(_abandon_all, waited_for))
    if not waited_for:
        joint.resolve([])
        return
    joint.gates = waited_for[0].gates
    lock = threading.Lock()
    missing = len(waited_for)

    def count(_done: Promise[Any]) -> None:
        nonlocal missing
        with lock:
            missing -= 1
            last = missing == 0
        if last:
            _settle(joint, waited_for)

    for promise in waited_for:
        promise.add_done_callback(count)


def _settle(joint: Promise[list[Any]], done: list[Promise[Any]]) -> None:
    try:
        values = [promise.peek() for promise in done]
    except BaseException as error:  # noqa: BLE001  # handed on to the reader
        joint.fail(error)
    else:
        joint.resolve(values, lambda _: [promise.get(timeout=0) for promise in done])


def _abandon_all(promises: list[Promise[Any]]) -> None:
    for promise in promises:
        promise.abandon()
