"""Helping: the thread that makes a blocking call runs the actors it needs, as far as they are idle.

It puts its message into the mailbox of an actor, runs that actor, then whatever that made due,
until its own answer is there. What is due then goes to the dispatcher. If another thread runs the
actor, it finds the message in its mailbox, and only then this thread waits, at a gate. A switch of
threads costs ten times the work of a publish.

While it helps, a thread is in no user's code, and runs none: callbacks of users are given to the
dispatcher. It helps for a bounded time only.
"""

from __future__ import annotations

import time
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Any

from dmq_actors._runtime.here import here
from dmq_actors._runtime.signals import hold_signals, release_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._runtime.here import Due
    from dmq_actors._runtime.promise import Promise
    from dmq_actors._runtime.signals import Held

MAX_HELP = 0.05
"""Seconds after which the rest goes to the dispatcher, however much others have put before it."""

MAX_IN_LOOP = 0.002
"""As `MAX_HELP`, for the thread of an event loop."""


def help_with(
    deliver: Callable[[Any, Promise[Any]], None], message: Any, reply: Promise[Any]
) -> None:
    """Deliver a message and run what it makes due, until it is answered or others must go on."""
    outer = here.due
    # A finalizer or signal handler may have interrupted a thread that helps itself already. What
    # that has made due would wait for it, so it is run here, too.
    due: list[Due] = [] if outer is None else list(outer)
    held: Held = []
    done = 0
    try:
        hold_signals(held)
        here.due = due
        deliver(message, reply)
        until = 0.0
        for actor in due:  # it grows while it is walked
            actor.run(reply)
            done += 1
            if reply.done():
                break
            if done % 16 == 0:
                now = time.monotonic()
                until = until or now + (MAX_HELP if _get_running_loop() is None else MAX_IN_LOOP)
                if now > until:
                    break
    except BaseException:  # thrown into this thread from outside
        reply.abandon()
        raise
    finally:
        here.due = outer
        try:
            _leave(due, done)
        except BaseException:
            _leave(due, done)  # it was hit: twice is harmless, not at all would not be
            raise
        finally:
            try:
                release_signals(held)  # and a Ctrl-C that came meanwhile is raised
            except BaseException:
                reply.abandon()
                raise


def _leave(due: list[Due], done: int) -> None:
    for actor in due[done:]:
        actor.leave_to_dispatcher()
