"""`Traffic`: whose turn it is, and whether a topic grows without bound."""

from __future__ import annotations

import pytest
from core_support import examples
from hypothesis import given
from hypothesis import strategies as st

from dmq_actors import TopicConfig
from dmq_actors._core.batch import ROUND_ROBIN
from dmq_actors._core.traffic import GROWING_AT, Traffic


def test_messages_without_a_key_are_dealt_round_from_partition_0():
    traffic = Traffic(TopicConfig(3))
    assert traffic.deal([ROUND_ROBIN] * 4) == [0, 1, 2, 0]
    assert traffic.deal([ROUND_ROBIN] * 3) == [1, 2, 0]


def test_messages_with_a_key_keep_their_partition_and_take_no_turn():
    traffic = Traffic(TopicConfig(3))
    assert traffic.deal([2, ROUND_ROBIN, 0, ROUND_ROBIN, 1]) == [2, 0, 0, 1, 1]
    assert traffic.deal([ROUND_ROBIN]) == [2]


@examples(60)
@given(st.integers(1, 5), st.lists(st.lists(st.integers(-1, 0), max_size=6), max_size=6))
def test_however_they_are_batched_the_turns_are_the_same(count, batches):
    one_by_one, batched = Traffic(TopicConfig(count)), Traffic(TopicConfig(count))
    flat = [partition for batch in batches for partition in batch]
    expected = [one_by_one.deal([partition])[0] for partition in flat]
    assert [p for batch in batches for p in batched.deal(batch)] == expected


def test_dealing_leaves_the_list_it_is_given_alone():
    given_list = [ROUND_ROBIN, 1]
    Traffic(TopicConfig(2)).deal(given_list)
    assert given_list == [ROUND_ROBIN, 1]


def test_a_topic_without_bound_warns_once_at_each_doubling_of_a_million():
    traffic = Traffic(TopicConfig())
    step = GROWING_AT // 4
    warned = [n * step for n in range(1, 33) if traffic.count(step)]
    assert warned == [1_000_000, 2_000_000, 4_000_000, 8_000_000]
    assert traffic.published == 8_000_000


def test_a_batch_that_passes_several_marks_warns_once():
    traffic = Traffic(TopicConfig())
    assert traffic.count(5_000_000)
    assert not traffic.count(2_999_999)
    assert traffic.count(1)


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(retention_count=5),
        TopicConfig(retention_bytes=5),
        TopicConfig(retention_seconds=5.0),
        TopicConfig(1, 5, 5, 5.0),
    ],
)
def test_a_topic_with_any_bound_never_warns(config):
    traffic = Traffic(config)
    assert not traffic.count(10 * GROWING_AT)
    assert traffic.published == 10 * GROWING_AT
