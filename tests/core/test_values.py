"""Values: what is stored as it is, what is copied, and how large it counts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import pytest
from core_support import examples
from hypothesis import given
from hypothesis import strategies as st

from dmq_actors import DeliveredMessage, InvalidArgumentError, Message, StoredMessage
from dmq_actors._core.values import IMMUTABLE_TYPES, copy_in, copy_out, size_of

IMMUTABLE = [
    "text",
    b"bytes",
    12345678901234567890,
    1.5,
    float("nan"),
    True,
    2j,
    None,
    date(2024, 2, 29),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    time(12, 30),
    timedelta(days=1),
    timezone(timedelta(hours=2)),
    Decimal("1.10"),
    Fraction(1, 3),
    UUID(int=5),
    range(3),
]


@pytest.mark.parametrize("value", IMMUTABLE, ids=lambda value: type(value).__name__)
def test_an_immutable_built_in_goes_in_and_out_as_it_is(value):
    assert copy_in(value) is value
    message = StoredMessage(value)
    assert copy_out([message])[0] is message


def test_every_immutable_type_is_in_the_list_above():
    assert {type(value) for value in IMMUTABLE} == IMMUTABLE_TYPES


class Text(str):
    """A subclass may carry anything, so it is copied."""

    __slots__ = ("note",)


@dataclass
class Order:
    items: list[str] = field(default_factory=list)


def test_an_instance_of_a_subclass_of_an_immutable_type_is_copied():
    text = Text("x")
    text.note = ["mutable"]
    copied = copy_in(text)
    assert copied == "x"
    assert copied.note == text.note
    assert copied.note is not text.note


@pytest.mark.parametrize(
    "value",
    [
        [1, [2]],
        {"a": [1]},
        {1, 2},
        bytearray(b"x"),
        Order(["a"]),
        ([1], 2),
        OrderedDict(a=[1]),
        [Order(["a"])],
    ],
    ids=repr,
)
def test_a_mutable_value_is_copied_in_depth(value):
    copied = copy_in(value)
    assert copied == value
    assert copied is not value


def test_a_copy_shares_nothing_with_its_original():
    order = Order(["a"])
    copied = copy_in({"order": order})
    order.items.append("b")
    assert copied["order"].items == ["a"]


def test_an_object_that_stands_twice_in_a_value_stands_twice_in_the_copy():
    inner = [1]
    copied = copy_in([inner, inner])
    assert copied[0] is copied[1]


class Stubborn:
    def __init__(self, error):
        self.error = error

    def __deepcopy__(self, _memo):
        raise self.error


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (Stubborn(RuntimeError("no")), "RuntimeError: no"),
        ([Stubborn(RecursionError("deep"))], "RecursionError: deep"),
        (threading.Lock(), "TypeError: cannot pickle"),
        ((n for n in ()), "TypeError: cannot pickle"),
    ],
    ids=["custom", "nested", "lock", "generator"],
)
def test_a_value_that_refuses_to_be_copied_is_refused_with_cause_and_two_ways_out(value, cause):
    name = type(value).__name__
    with pytest.raises(InvalidArgumentError) as caught:
        copy_in(value)
    text = str(caught.value)
    assert f"type {name} cannot be copied ({cause}" in text
    assert "copy.deepcopy" in text
    assert "share_values=True" in text
    assert caught.value.__cause__ is not None


def test_an_interrupt_during_a_copy_is_not_an_error_of_the_value():
    with pytest.raises(KeyboardInterrupt):
        copy_in(Stubborn(KeyboardInterrupt()))


def test_what_comes_out_is_a_copy_with_all_other_fields_kept():
    message = DeliveredMessage(["v"], "k", message_id="id", topic="t", offset=3, generation=2)
    [out] = copy_out([message])
    assert out == message
    assert type(out) is DeliveredMessage
    assert out.value is not message.value
    assert out.headers is message.headers


def test_only_the_mutable_ones_of_several_messages_are_made_anew():
    messages = [StoredMessage("a"), StoredMessage(["b"]), StoredMessage(None)]
    out = copy_out(messages)
    assert out == messages
    assert [new is old for new, old in zip(out, messages, strict=True)] == [True, False, True]


@pytest.mark.parametrize(
    ("value", "key", "size"),
    [
        (b"12345", None, 5),
        (bytearray(b"12345"), None, 5),
        ("12345", None, 5),
        ("", None, 0),
        ("ü€😀", None, 2 + 3 + 4),
        ("\ud800", None, 3),
        (7, None, 8),
        (10**100, None, 8),
        (1.5, None, 8),
        (True, None, 8),
        (None, None, 8),
        ("abc", "key", 6),
        ("abc", "ü", 5),
        ("abc", b"\x00\xff", 5),
        ("abc", "", 3),
        ("abc", b"", 3),
    ],
)
def test_the_size_of_a_message_is_that_of_its_value_and_key(value, key, size):
    assert size_of(Message(value, key)) == size


@pytest.mark.parametrize("value", [[], {"a": 1}, Order(), range(3), Decimal(1), 2j])
def test_other_objects_count_as_much_as_they_say_themselves(value):
    assert size_of(Message(value)) > 0


@examples(100)
@given(st.text(st.characters(codec=None), max_size=20), st.none() | st.text(max_size=10))
def test_text_counts_as_its_utf8(value, key):
    expected = len(value.encode(errors="surrogatepass")) + len((key or "").encode())
    assert size_of(Message(value, key)) == expected
