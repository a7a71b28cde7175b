"""What the model of the group's state machine knows: one status for each offset.

* ``AHEAD``: not with anybody; to be delivered, not before its due time.
* ``FLYING``: delivered to the owner of its partition, and neither completed nor failed.
* ``WAITING``: failed, to be delivered again when its time has come.
* ``BURYING``: failed too often, on its way to the dead-letter topic.
* ``SKIPPED``: a seek went past it; done at the next commit, ahead again if there is none.
* ``DONE``: completed, or lost by retention before it was read.
* ``BEFORE``: below where the group started, so done unless a seek goes back there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmq_actors import DeliveredMessage

AHEAD, FLYING, WAITING, BURYING = "ahead", "flying", "waiting", "burying"
SKIPPED, DONE, BEFORE = "skipped", "done", "before"


@dataclass
class Cell:
    """What the model knows of one offset."""

    key: bytes | None
    name: str | None
    status: str = AHEAD
    due: float = 0.0
    due_by: float = 0.0
    token: DeliveredMessage | None = None
    loose: bool = False
    """Whether the delivery may be over: the design leaves open what a seek does to a retry."""

    over: list[DeliveredMessage] = field(default_factory=list)
    deliveries: int = 0
    exact: bool = True
    """Whether the number of the next attempt is known; a replay may count on or begin anew."""

    given_back: bool = False
    failures: int = 0
    duplicate: bool = False

    @property
    def pending(self):
        return self.status in (AHEAD, WAITING)

    def end(self):
        """The delivery is over."""
        if self.token is not None:
            self.over.append(self.token)
        self.token, self.loose = None, False

    def complete(self):
        self.end()
        self.status, self.failures, self.due, self.due_by = DONE, 0, 0.0, 0.0

    def put_back(self):
        self.end()
        self.status = AHEAD

    def wait(self, due, due_by=None):
        self.status, self.due, self.due_by = WAITING, due, due if due_by is None else due_by


@dataclass
class Part:
    """What the model knows of one partition."""

    cells: list[Cell] = field(default_factory=list)
    base: int = 0
    committed: int = 0

    def numbered(self):
        return list(enumerate(self.cells))
