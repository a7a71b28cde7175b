"""Checks of arguments: what passes, what does not, and what the error tells."""

from __future__ import annotations

import math
from types import MappingProxyType

import pytest

from dmq_actors import Delivery, DMQError, InvalidArgumentError, InvalidTypeError
from dmq_actors._core.arguments import (
    check_choice,
    check_consumer_id,
    check_int,
    check_name,
    check_new_topic_name,
    check_offsets,
    check_seconds,
)

LONGEST = "x" * 249


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "-", "_", "__dlq_t", "0", LONGEST])
def test_a_good_name_passes(name):
    assert check_name("topic name", name) is name


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "a b", "a/b", "a\n", "\n", "a\x00", "ü", "٣", "a:b", "a,b", LONGEST + "x",
    ],
)  # fmt: skip
def test_a_bad_name_is_refused_with_the_rule(name):
    with pytest.raises(InvalidArgumentError, match=r"group id .* is not valid: use 1 to 249 of"):
        check_name("group id", name)


@pytest.mark.parametrize("name", [None, 5, b"name", ["name"], True])
def test_a_name_that_is_no_text_is_refused_with_its_type(name):
    with pytest.raises(InvalidTypeError, match=f"a topic name is a str, found {_kind(name)}"):
        check_name("topic name", name)


def test_a_name_too_long_to_print_is_cut_short_and_counted():
    with pytest.raises(InvalidArgumentError, match=r"\(100000 characters\)") as caught:
        check_name("topic name", "x" * 100_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["dlq_t", "_dlq_t", "t__dlq_", "__dl", "__DLQ_t"])
def test_a_new_topic_may_be_called_almost_anything(name):
    assert check_new_topic_name(name) is name


@pytest.mark.parametrize("name", ["__dlq_", "__dlq_t", "__dlq___dlq_t"])
def test_the_name_space_of_dead_letters_is_the_brokers(name):
    with pytest.raises(InvalidArgumentError, match=f"{name}.*kept for dead-letter topics.*created"):
        check_new_topic_name(name)


@pytest.mark.parametrize("name", ["", "a b", LONGEST + "x"])
def test_a_new_topic_follows_the_rule_of_names(name):
    with pytest.raises(InvalidArgumentError, match="topic name"):
        check_new_topic_name(name)


@pytest.mark.parametrize("consumer_id", ["c", "host:80", "a b", "ü", "消费者", " ", LONGEST])
def test_a_good_consumer_id_passes(consumer_id):
    assert check_consumer_id(consumer_id) is consumer_id


@pytest.mark.parametrize("consumer_id", ["", "a\n", "\t", "a\x00b", "\ud800", LONGEST + "x"])
def test_a_bad_consumer_id_is_refused_with_the_rule(consumer_id):
    with pytest.raises(InvalidArgumentError, match="not valid: use 1 to 249 printable"):
        check_consumer_id(consumer_id)


@pytest.mark.parametrize("consumer_id", [None, 5, b"c", ("c",)])
def test_a_consumer_id_that_is_no_text_is_refused_with_its_type(consumer_id):
    with pytest.raises(InvalidTypeError, match=f"consumer id is a str, found {_kind(consumer_id)}"):
        check_consumer_id(consumer_id)


@pytest.mark.parametrize("value", [1, 2, 5])
def test_a_number_in_its_range_passes(value):
    assert check_int("n", value, minimum=1, maximum=5) == value


@pytest.mark.parametrize("value", [1, 10**30])
def test_a_range_may_have_no_upper_end(value):
    assert check_int("n", value, minimum=1) == value


@pytest.mark.parametrize(
    ("value", "maximum", "text"),
    [(0, None, "n must be 1 or more, found 0"), (-7, 5, "n must be 1 to 5, found -7"),
     (6, 5, "n must be 1 to 5, found 6")],
)  # fmt: skip
def test_a_number_out_of_its_range_is_refused_with_the_range(value, maximum, text):
    with pytest.raises(InvalidArgumentError, match=text) as caught:
        check_int("n", value, minimum=1, maximum=maximum)
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, [1], math.nan])
def test_what_is_no_whole_number_is_refused_with_its_type(value):
    with pytest.raises(InvalidTypeError, match=f"n is an int, found {_kind(value)}"):
        check_int("n", value, minimum=0)


@pytest.mark.parametrize("value", [0, 0.0, 1, 2.5, 1e308, 1e-300])
def test_good_seconds_pass_as_a_float(value):
    seconds = check_seconds("timeout", value)
    assert seconds == value
    assert type(seconds) is float


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, -math.inf])
def test_bad_seconds_are_refused_with_the_rule(value):
    with pytest.raises(
        InvalidArgumentError, match=f"timeout must be a finite .*, 0 or more, found .*{value}"
    ):
        check_seconds("timeout", value)


@pytest.mark.parametrize("value", [0, 0.0, -1])
def test_seconds_may_have_to_be_above_zero(value):
    with pytest.raises(InvalidArgumentError, match=f"above 0, found .*{value}"):
        check_seconds("timeout", value, above_zero=True)
    assert check_seconds("timeout", 1e-9, above_zero=True) == 1e-9


@pytest.mark.parametrize("value", [True, "1", None, [1], 1j])
def test_what_is_no_number_of_seconds_is_refused_with_its_type(value):
    with pytest.raises(
        InvalidTypeError, match=f"timeout is a number of seconds, found {_kind(value)}"
    ):
        check_seconds("timeout", value)


def test_a_number_of_seconds_too_large_for_a_float_is_an_error_of_ours():
    with pytest.raises(InvalidArgumentError, match="timeout must be a finite number"):
        check_seconds("timeout", 10**400)


@pytest.mark.parametrize("given", [{}, {0: 0}, {3: 10**20, 0: 5}])
def test_good_offsets_pass_as_a_dict_of_their_own(given):
    checked = check_offsets(given)
    assert checked == given
    assert checked is not given


def test_any_mapping_will_do_for_offsets():
    assert check_offsets(MappingProxyType({1: 2})) == {1: 2}


@pytest.mark.parametrize("wrong", [[(0, 1)], 5, "0:1", {0}])
def test_offsets_that_are_no_mapping_are_refused_with_their_type(wrong):
    with pytest.raises(InvalidTypeError, match=f"dict of partition.*found {_kind(wrong)}"):
        check_offsets(wrong)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({-1: 0}, InvalidArgumentError, "a partition must be 0 or more, found -1"),
        ({0: -1}, InvalidArgumentError, "an offset must be 0 or more, found -1"),
        ({"0": 1}, InvalidTypeError, "a partition is an int, found str '0'"),
        ({True: 1}, InvalidTypeError, "a partition is an int, found bool"),
        ({0: 1.0}, InvalidTypeError, "an offset is an int, found float"),
        ({0: None}, InvalidTypeError, "an offset is an int, found NoneType"),
        ({0: 1, 1: False}, InvalidTypeError, "an offset is an int, found bool"),
    ],
)
def test_wrong_partitions_and_offsets_are_refused_with_what_was_found(wrong, error, text):
    with pytest.raises(error, match=text):
        check_offsets(wrong)


@pytest.mark.parametrize("value", [*Delivery, *map(str, Delivery)])
def test_a_choice_is_taken_as_member_or_as_text(value):
    assert check_choice("delivery", value, Delivery) is Delivery(value)


@pytest.mark.parametrize("value", ["", "AT_LEAST_ONCE", "at-least-once", None, 1, [], {}, b"x"])
def test_what_is_none_of_the_choices_is_refused_with_all_of_them(value):
    with pytest.raises(InvalidArgumentError) as caught:
        check_choice("delivery", value, Delivery)
    text = "delivery must be one of 'at_most_once', 'at_least_once', 'exactly_once'; found "
    assert str(caught.value).startswith(text)
    assert str(caught.value).endswith(repr(value))
    assert isinstance(caught.value, InvalidTypeError) == (not isinstance(value, str))


def test_every_error_of_a_check_is_a_value_error_and_ours():
    for check in (
        lambda: check_name("n", None),
        lambda: check_name("n", ""),
        lambda: check_consumer_id(""),
        lambda: check_int("n", "", minimum=0),
        lambda: check_seconds("n", -1),
        lambda: check_offsets(None),
        lambda: check_choice("n", None, Delivery),
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            check()
        assert isinstance(caught.value, DMQError)


def _kind(value):
    return type(value).__name__
