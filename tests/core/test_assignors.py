"""Assignors: invariants 3 and 4 of the design, tables, and `sticky` against brute force."""

from __future__ import annotations

from itertools import product

import pytest
from core_support import examples
from hypothesis import given
from hypothesis import strategies as st

from dmq_actors import InvalidArgumentError
from dmq_actors._core.assignors import ASSIGNORS, contiguous, modular, resolve_assignor, roundrobin
from dmq_actors._core.assignors import sticky as assign_sticky

NAMES = sorted(ASSIGNORS)
member_lists = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)


@st.composite
def before_and_members(draw, most=9):
    """An assignment that some members have, and the members there are now."""
    count = draw(st.integers(0, most))
    old = draw(member_lists)
    before = {member: [] for member in old}
    for partition in range(count):
        owner = draw(st.none() | st.sampled_from(old)) if old else None
        if owner is not None:
            before[owner].append(partition)
    return before, draw(member_lists), count


def sticky(members, count, before):
    return assign_sticky(members, count, before)


def assert_a_partition_of_the_partitions(assignment, members, count):
    assert list(assignment) == members
    dealt = sorted(partition for owned in assignment.values() for partition in owned)
    assert dealt == (list(range(count)) if members else [])
    assert all(owned == sorted(owned) for owned in assignment.values())


@pytest.mark.parametrize("name", NAMES)
@examples(60)
@given(case=before_and_members())
def test_each_partition_has_exactly_one_owner_or_all_have_none(name, case):
    before, members, count = case
    assignment = ASSIGNORS[name](members, count, before)
    assert_a_partition_of_the_partitions(assignment, members, count)


@pytest.mark.parametrize("name", NAMES)
@examples(60)
@given(case=before_and_members())
def test_no_member_owns_two_more_than_another(name, case):
    before, members, count = case
    loads = [len(owned) for owned in ASSIGNORS[name](members, count, before).values()]
    assert not loads or max(loads) - min(loads) <= 1


@pytest.mark.parametrize("name", ["modular", "range", "roundrobin"])
@examples(60)
@given(case=before_and_members(), other=before_and_members())
def test_same_members_and_count_give_the_same_assignment_whatever_was_before(name, case, other):
    _, members, count = case
    assign = ASSIGNORS[name]
    assert assign(members, count, case[0]) == assign(members, count, other[0])


@examples(60)
@given(case=before_and_members())
def test_sticky_gives_the_same_for_the_same_members_count_and_past(case):
    before, members, count = case
    copied = {member: list(owned) for member, owned in before.items()}
    assert sticky(members, count, before) == sticky(members, count, copied)
    assert before == copied


@pytest.mark.parametrize("name", NAMES)
@examples(40)
@given(members=member_lists, count=st.integers(0, 9))
def test_assigning_the_same_members_again_moves_nothing(name, members, count):
    once = ASSIGNORS[name](members, count, {})
    assert ASSIGNORS[name](members, count, once) == once


@examples(80)
@given(case=before_and_members(most=6))
def test_sticky_keeps_as_many_partitions_in_place_as_any_balanced_assignment(case):
    before, members, count = case
    members = members[:3]
    kept = _in_place(sticky(members, count, before), before)
    best = 0
    for owners in product(members, repeat=count):
        loads = [owners.count(member) for member in members]
        if max(loads, default=0) - min(loads, default=0) <= 1:
            other = {m: [p for p in range(count) if owners[p] == m] for m in members}
            best = max(best, _in_place(other, before))
    assert kept == best


@examples(60)
@given(data=st.data(), count=st.integers(1, 12))
def test_sticky_stays_balanced_and_moves_no_more_than_it_must_through_joins_and_leaves(data, count):
    members: list[str] = []
    assignment: dict[str, list[int]] = {}
    for step in range(data.draw(st.integers(1, 10), label="steps")):
        leaves = members and data.draw(st.booleans(), label="leaves")
        before, n = assignment, len(members)
        if leaves:
            members = [*members]
            members.remove(data.draw(st.sampled_from(members), label="who"))
        else:
            members = [*members, f"m{step}"]
        assignment = sticky(members, count, before)
        assert_a_partition_of_the_partitions(assignment, members, count)
        loads = [len(owned) for owned in assignment.values()]
        assert not loads or max(loads) - min(loads) <= 1
        if members and n and not leaves:  # a join takes only what the new member gets
            assert _in_place(assignment, before) == count - len(assignment[members[-1]])
        elif members and leaves:  # a leave moves only what the member that left had
            gone = next(iter(set(before) - set(members)))
            assert _in_place(assignment, before) == count - len(before[gone])


def _in_place(assignment, before):
    return sum(
        len(set(owned) & set(before.get(member, ()))) for member, owned in assignment.items()
    )


@pytest.mark.parametrize(
    ("assign", "expected"),
    [
        (modular, {"c": [0, 3, 6], "a": [1, 4], "b": [2, 5]}),
        (roundrobin, {"c": [2, 5], "a": [0, 3, 6], "b": [1, 4]}),
        (contiguous, {"c": [0, 1, 2], "a": [3, 4], "b": [5, 6]}),
        (sticky, {"c": [0, 1, 2], "a": [3, 4], "b": [5, 6]}),
    ],
)
def test_seven_partitions_are_dealt_to_three_members_as_pinned(assign, expected):
    assert assign(["c", "a", "b"], 7, {}) == expected


@pytest.mark.parametrize("count", [1, 2, 5, 12])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_modular_gives_partition_p_to_member_p_modulo_n(count, n):
    members = [f"m{number}" for number in range(n)]
    assignment = modular(members, count, {})
    for partition in range(count):
        assert partition in assignment[members[partition % n]]


@pytest.mark.parametrize("name", NAMES)
def test_members_beyond_the_partitions_get_an_empty_list(name):
    assignment = ASSIGNORS[name](["a", "b", "c", "d"], 2, {})
    assert sorted(map(len, assignment.values())) == [0, 0, 1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_without_members_nothing_is_assigned(name):
    assert ASSIGNORS[name]([], 5, {"gone": [0, 1, 2, 3, 4]}) == {}


@pytest.mark.parametrize("name", NAMES)
def test_an_assignor_is_found_by_its_name(name):
    assert resolve_assignor(name) is ASSIGNORS[name]


@pytest.mark.parametrize("wrong", ["cooperative", "", "Modular", None, 3, ["range"], modular])
def test_an_unknown_assignor_is_refused_with_the_names_of_the_known_ones(wrong):
    with pytest.raises(
        InvalidArgumentError, match=r"\['modular', 'range', 'roundrobin', 'sticky'\]"
    ):
        resolve_assignor(wrong)
