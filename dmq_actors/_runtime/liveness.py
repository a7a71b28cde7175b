"""Seeing that a thread has died, at once and without another thread to watch it.

Each thread holds, as a thread-local, an object that nobody else holds. When the thread ends,
however it ends, that object is collected, and whoever keeps a weak reference with a callback hears
of it.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_local = threading.local()


class Life:
    """Lives as long as its thread."""

    __slots__ = ("__weakref__",)


class ThreadWatch:
    """Watches the thread that uses something; another one may take over.

    Args:
        died: what to do when the thread ends. Runs where the thread ends, and may run where the
            collector interrupts another: it must take no lock.
    """

    __slots__ = ("_died", "_ref")

    def __init__(self, died: Callable[[], object]) -> None:
        self._died = died
        self._ref: weakref.ref[Life] | None = None

    def mind(self) -> None:
        """The calling thread is the one from now on."""
        life = getattr(_local, "life", None)
        if life is None:
            life = _local.life = Life()
        if self._ref is None or self._ref() is not life:
            died = self._died
            self._ref = weakref.ref(life, lambda _: died())
