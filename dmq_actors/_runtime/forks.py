"""Forks: the threads of a broker do not exist in the child, so everything there refuses."""

from __future__ import annotations

import os

from dmq_actors.errors import BrokerForkedError


class _Forks:
    """Counts the forks of this process and its ancestors."""

    count = 0

    @classmethod
    def happened(cls) -> None:
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Forks.happened)


def fork_count() -> int:
    """A number that differs between a process and its forked children."""
    return _Forks.count


def forked_error() -> BrokerForkedError:
    """What a call in the child of a fork gets."""
    return BrokerForkedError(
        "this broker was made before os.fork(), its threads live in the parent process; "
        "make a new MessageQueue in the child (or start the child with 'spawn')"
    )
