"""Options of topics and groups: defaults, every option, every way to get one wrong."""

from __future__ import annotations

import inspect

import pytest

from dmq_actors import (
    Delivery,
    GroupConfig,
    InvalidArgumentError,
    InvalidTypeError,
    MessageQueue,
    OnOffsetLost,
    RetryOrder,
    StartFrom,
    TopicConfig,
)
from dmq_actors._core.options import MAX_PARTITIONS, group_config, topic_config
from dmq_actors.config import GroupOptions, TopicOptions


def test_a_topic_without_options_has_the_documented_defaults():
    assert topic_config(1) == TopicConfig()


def test_a_group_without_options_has_the_documented_defaults():
    assert group_config() == GroupConfig()


def test_all_options_of_a_topic_arrive():
    config = topic_config(
        3,
        retention_count=5,
        retention_bytes=7,
        retention_seconds=2.5,
        partitioner="murmur2",
        share_values=True,
    )
    assert config == TopicConfig(3, 5, 7, 2.5, "murmur2", share_values=True)


def test_all_options_of_a_group_arrive_as_members_of_their_enumerations():
    config = group_config(
        "exactly_once",
        start_from="latest",
        assignor="sticky",
        max_failures=1,
        retry_backoff=0.5,
        retry_backoff_max=2,
        retry_order="partition",
        on_offset_lost="error",
    )
    assert config == GroupConfig(
        Delivery.EXACTLY_ONCE,
        StartFrom.LATEST,
        "sticky",
        1,
        0.5,
        2.0,
        RetryOrder.PARTITION,
        OnOffsetLost.ERROR,
    )
    assert isinstance(config.delivery, Delivery)
    assert isinstance(config.retry_order, RetryOrder)


@pytest.mark.parametrize(
    ("function", "config", "first"),
    [(topic_config, TopicConfig, "num_partitions"), (group_config, GroupConfig, "delivery")],
)
def test_the_defaults_of_the_options_are_those_of_the_config(function, config, first):
    defaults = config()
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            # An option that is a dict has None for an empty one.
            assert parameter.default == (getattr(defaults, name) or parameter.default)
    assert next(iter(inspect.signature(function).parameters)) == first


@pytest.mark.parametrize(
    ("function", "options", "facade"),
    [
        (topic_config, TopicOptions, MessageQueue.create_topic),
        (group_config, GroupOptions, MessageQueue.create_consumer_group),
    ],
)
def test_facade_typed_dict_and_check_name_the_same_options(function, options, facade):
    keyword_only = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert list(keyword_only) == list(options.__annotations__)
    at_facade = inspect.signature(facade).parameters
    assert {name: at_facade[name].default for name in keyword_only} == keyword_only


@pytest.mark.parametrize("count", [1, MAX_PARTITIONS])
def test_a_topic_may_have_one_to_ten_thousand_partitions(count):
    assert topic_config(count).num_partitions == count


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("num_partitions", 0, InvalidArgumentError),
        ("num_partitions", -1, InvalidArgumentError),
        ("num_partitions", MAX_PARTITIONS + 1, InvalidArgumentError),
        ("num_partitions", 1.0, InvalidTypeError),
        ("num_partitions", True, InvalidTypeError),
        ("num_partitions", None, InvalidTypeError),
        ("retention_count", 0, InvalidArgumentError),
        ("retention_count", -5, InvalidArgumentError),
        ("retention_count", 1.5, InvalidTypeError),
        ("retention_count", "5", InvalidTypeError),
        ("retention_count", True, InvalidTypeError),
        ("retention_bytes", 0, InvalidArgumentError),
        ("retention_bytes", 1e6, InvalidTypeError),
        ("retention_seconds", 0, InvalidArgumentError),
        ("retention_seconds", -1.0, InvalidArgumentError),
        ("retention_seconds", float("inf"), InvalidArgumentError),
        ("retention_seconds", float("nan"), InvalidArgumentError),
        ("retention_seconds", "1", InvalidTypeError),
        ("partitioner", "md5", InvalidArgumentError),
        ("partitioner", None, InvalidArgumentError),
        ("share_values", 1, InvalidTypeError),
        ("share_values", None, InvalidTypeError),
        ("share_values", "yes", InvalidTypeError),
        ("dead_letters", [], InvalidTypeError),
        ("dead_letters", 5, InvalidTypeError),
        ("dead_letters", {"partitioner": "crc32"}, InvalidArgumentError),
        ("dead_letters", {1: 5}, InvalidArgumentError),
    ],
)
def test_a_wrong_option_of_a_topic_is_refused_by_name(option, value, error):
    options = {"num_partitions": 1, option: value}
    with pytest.raises(error, match=option):
        topic_config(**options)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("delivery", "twice", InvalidArgumentError),
        ("delivery", None, InvalidArgumentError),
        ("start_from", "middle", InvalidArgumentError),
        ("start_from", 0, InvalidArgumentError),
        ("assignor", "eager", InvalidArgumentError),
        ("assignor", None, InvalidArgumentError),
        ("max_failures", 0, InvalidArgumentError),
        ("max_failures", 1.0, InvalidTypeError),
        ("max_failures", None, InvalidTypeError),
        ("retry_backoff", -1, InvalidArgumentError),
        ("retry_backoff", float("inf"), InvalidArgumentError),
        ("retry_backoff", None, InvalidTypeError),
        ("retry_backoff_max", -0.1, InvalidArgumentError),
        ("retry_backoff_max", "60", InvalidTypeError),
        ("retry_order", "topic", InvalidArgumentError),
        ("retry_order", None, InvalidArgumentError),
        ("on_offset_lost", "crash", InvalidArgumentError),
        ("on_offset_lost", True, InvalidArgumentError),
    ],
)
def test_a_wrong_option_of_a_group_is_refused_by_name(option, value, error):
    with pytest.raises(error, match=option):
        group_config(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("retention_count", 0, InvalidArgumentError),
        ("retention_count", "5", InvalidTypeError),
        ("retention_bytes", -1, InvalidArgumentError),
        ("retention_bytes", 1.5, InvalidTypeError),
        ("retention_seconds", 0, InvalidArgumentError),
        ("retention_seconds", True, InvalidTypeError),
    ],
)
def test_the_limits_of_the_dead_letters_are_checked_like_those_of_the_topic(option, value, error):
    with pytest.raises(error, match=option):
        topic_config(1, dead_letters={option: value})


def test_the_dead_letters_have_limits_of_their_own_and_share_the_rest():
    config = topic_config(
        3, retention_count=5, partitioner="murmur2", dead_letters={"retention_seconds": 60.0}
    )
    assert config.for_dead_letters() == TopicConfig(
        3, retention_seconds=60.0, partitioner="murmur2"
    )


def test_the_dict_of_limits_is_cut_off_from_the_callers():
    limits = {"retention_count": 5}
    config = topic_config(1, dead_letters=limits)
    limits["retention_count"] = 0
    assert config.for_dead_letters().retention_count == 5


def test_a_function_of_the_user_is_kept_as_the_partitioner():
    def mine(_key, _count):
        return 0

    assert topic_config(1, partitioner=mine).partitioner is mine


@pytest.mark.parametrize("config", [TopicConfig(), GroupConfig()])
def test_a_config_cannot_be_changed(config):
    name = next(iter(config.__dataclass_fields__))
    with pytest.raises(AttributeError):
        setattr(config, name, 5)
