"""Who owns which partition: pure functions from members (in order of joining) to partitions.

``modular`` is this project's default. ``range`` and ``roundrobin`` are named after Kafka's; for the
one topic a group is bound to, ``roundrobin`` deals like ``modular`` but in the order of the ids.
``sticky`` moves the fewest partitions that a balance within one allows, so it alone depends on the
assignment before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dmq_actors.errors import InvalidArgumentError, InvalidTypeError

Assignment = dict[str, list[int]]
Assignor = Callable[[Sequence[str], int, Mapping[str, Sequence[int]]], Assignment]


def modular(members: Sequence[str], count: int, _before: Mapping[str, Sequence[int]]) -> Assignment:
    """Partition p goes to ``members[p % len(members)]``."""
    return {member: list(range(at, count, len(members))) for at, member in enumerate(members)}


def roundrobin(
    members: Sequence[str], count: int, before: Mapping[str, Sequence[int]]
) -> Assignment:
    """As `modular`, over the members sorted by id, as Kafka's RoundRobinAssignor sorts them."""
    dealt = modular(sorted(members), count, before)
    return {member: dealt[member] for member in members}


def contiguous(
    members: Sequence[str], count: int, _before: Mapping[str, Sequence[int]]
) -> Assignment:
    """Runs of neighbouring partitions; the first ``count % len(members)`` members get one more."""
    quota, extra = divmod(count, max(len(members), 1))
    assignment, start = {}, 0
    for at, member in enumerate(members):
        end = start + quota + (at < extra)
        assignment[member] = list(range(start, end))
        start = end
    return assignment


def sticky(members: Sequence[str], count: int, before: Mapping[str, Sequence[int]]) -> Assignment:
    """Balanced within one, and as few partitions move as that allows.

    Every member may keep ``count // n``, and ``count % n`` of them one more: those that hold the
    most now, so that the partitions that must move are the fewest.
    """
    if not members:
        return {}
    quota, extra = divmod(count, len(members))
    held = {member: sorted(before.get(member, ())) for member in members}
    most_first = sorted(members, key=lambda member: -len(held[member]))
    limits = {member: quota + (at < extra) for at, member in enumerate(most_first)}
    kept = {member: held[member][: limits[member]] for member in members}
    taken = {partition for partitions in kept.values() for partition in partitions}
    free = (partition for partition in range(count) if partition not in taken)
    for member in members:
        while len(kept[member]) < limits[member]:
            kept[member].append(next(free))
    return {member: sorted(partitions) for member, partitions in kept.items()}


ASSIGNORS: dict[str, Assignor] = {
    "modular": modular,
    "range": contiguous,
    "roundrobin": roundrobin,
    "sticky": sticky,
}


def resolve_assignor(name: object) -> Assignor:
    """The assignor of this name."""
    if isinstance(name, str) and name in ASSIGNORS:
        return ASSIGNORS[name]
    wrong = InvalidArgumentError if isinstance(name, str) else InvalidTypeError
    raise wrong(f"unknown assignor {name!r}; use one of {sorted(ASSIGNORS)}")
