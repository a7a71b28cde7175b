"""Signals that come while the main thread runs an actor wait until it has done so.

A signal handler of Python's runs between any two instructions of the main thread, and may raise (a
Ctrl-C does). In the middle of an actor's work that would leave a message half handled, perhaps one
of another thread. So the handlers step aside for those microseconds, as trio does it for Ctrl-C,
and the signals are raised again right after.
"""

from __future__ import annotations

import importlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_NAMES = """
SIGINT SIGTERM SIGALRM SIGHUP SIGUSR1 SIGUSR2 SIGQUIT SIGABRT SIGBREAK SIGVTALRM SIGPROF SIGCHLD
"""
_NUMBERS = [int(getattr(signal, name)) for name in _NAMES.split() if hasattr(signal, name)]
"""Those that programs give handlers to."""

# The functions in C: those of `signal` make enums of all they see, at fifty times the cost.
_c: Any = importlib.import_module("_signal")

Held = list[tuple[int, Any]]
"""Signals that wait, with their handlers."""

_came: list[int] = []


def _note(number: int, _frame: FrameType | None) -> None:
    _came.append(number)


def hold_signals(held: Held) -> None:
    """Let handlers wait from now on, where this is the main thread; `held` gets what was there."""
    if threading.get_ident() != threading.main_thread().ident:
        return
    try:
        for number in _NUMBERS:
            handler = _c.getsignal(number)
            if callable(handler) and handler is not _note:
                held.append((number, handler))  # first, or an interrupt could leave it unknown
                _c.signal(number, _note)
    except ValueError:  # the main thread of a subinterpreter, which gets no signals
        held.clear()


def release_signals(held: Held) -> None:
    """Put the handlers back, and raise again what came meanwhile."""
    while held:
        _c.signal(*held[-1])
        held.pop()
    while _came:
        _c.raise_signal(_came.pop(0))
