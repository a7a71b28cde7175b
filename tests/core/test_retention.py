"""`Retention`: count, bytes and age, each alone and all together."""

from __future__ import annotations

import pytest
from core_support import examples
from hypothesis import given
from hypothesis import strategies as st

from dmq_actors import MessageTooLargeError, TopicConfig
from dmq_actors._core.retention import Retention


def retention(count=None, size=None, seconds=None):
    return Retention(TopicConfig(1, count, size, seconds))


def test_without_a_limit_nothing_is_cut():
    kept = retention()
    kept.appended(5, [], 0.0)
    assert kept.cut(0, 5, 1e12) == 0
    assert not kept.tracks_bytes


@pytest.mark.parametrize(("end", "cut"), [(0, 0), (2, 0), (3, 0), (4, 1), (100, 97)])
def test_by_count_the_last_ones_stay(end, cut):
    assert retention(count=3).cut(0, end, 0.0) == cut


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ([], 0),
        ([10], 0),
        ([5, 5], 0),
        ([5, 6], 1),
        ([1, 1, 10], 2),
        ([3, 3, 3, 3], 1),
        ([0, 10], 0),
    ],
)
def test_by_bytes_the_largest_tail_that_fits_stays(sizes, cut):
    kept = retention(size=10)
    kept.appended(len(sizes), sizes, 0.0)
    assert kept.cut(0, len(sizes), 0.0) == cut


@pytest.mark.parametrize(("now", "cut"), [(0.0, 0), (10.0, 0), (10.5, 2), (12.0, 2), (12.5, 5)])
def test_by_age_a_message_stays_until_it_is_older_than_the_limit(now, cut):
    kept = retention(seconds=10.0)
    kept.appended(2, [], 0.0)
    kept.appended(5, [], 2.0)
    assert kept.expired(0, now) == cut


def test_the_strictest_limit_decides():
    kept = retention(count=5, size=30, seconds=10.0)
    kept.appended(4, [10] * 4, 0.0)
    assert kept.cut(0, 4, 0.0) == 1
    kept.evicted(0, 1)
    kept.appended(10, [1] * 6, 5.0)
    assert kept.cut(1, 10, 5.0) == 5
    kept.evicted(1, 5)
    assert kept.size_bytes == 5
    assert kept.cut(5, 10, 20.0) == 10


def test_a_message_over_the_limit_is_refused_with_both_numbers():
    with pytest.raises(MessageTooLargeError, match=r"of 11 bytes.*retention_bytes=10"):
        retention(size=10).check_sizes([3, 11, 4])


def test_a_message_of_exactly_the_limit_passes():
    retention(size=10).check_sizes([10, 0])


def test_sizes_do_not_matter_without_a_limit_of_bytes():
    kept = retention(count=3)
    kept.check_sizes([])
    kept.appended(2, [], 0.0)
    kept.evicted(0, 1)
    assert kept.size_bytes == 0


def test_ages_are_forgotten_with_the_messages_that_other_limits_evict():
    """Else a topic of ten messages and a day would remember every publish of the day."""
    kept = retention(count=10, seconds=86_400.0)
    base = 0
    for end in range(1, 1001):
        kept.appended(end, [], end * 0.001)
        cut = kept.cut(base, end, end * 0.001)
        kept.evicted(base, cut)
        base = cut
    assert base == 990
    assert len(kept._batches) <= 11


@examples(100)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=20),
    st.none() | st.integers(1, 6),
    st.integers(9, 25),
)
def test_after_each_append_both_limits_hold_and_no_message_was_evicted_in_vain(
    batches, count, limit
):
    kept = retention(count=count, size=limit)
    sizes: list[int] = []
    base = 0
    for batch in batches:
        sizes += batch
        kept.appended(len(sizes), batch, 0.0)
        cut = kept.cut(base, len(sizes), 0.0)
        assert cut >= base
        kept.evicted(base, cut)
        assert kept.size_bytes == sum(sizes[cut:]) <= limit
        assert count is None or len(sizes) - cut <= count
        if cut > base:  # one more would have been too much
            assert sum(sizes[cut - 1 :]) > limit or (count and len(sizes) - cut + 1 > count)
        base = cut
