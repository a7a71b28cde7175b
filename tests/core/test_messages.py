"""Messages and headers: frozen, comparable, picklable, and shared without fear."""

from __future__ import annotations

import copy
import pickle

import pytest
from core_support import examples
from hypothesis import given
from hypothesis import strategies as st

from dmq_actors import DeliveredMessage, Headers, Message, StoredMessage
from dmq_actors.messages import NO_HEADERS

MESSAGES = [
    Message("v", "k", Headers({"a": "b"}), "id"),
    StoredMessage("v", b"k", Headers({"a": b"b"}), "id", "t", 2, 5, 1.5),
    DeliveredMessage("v", None, NO_HEADERS, "id", "t", 2, 5, 1.5, 3, 4, 7),
]
every_message = pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)


def test_a_message_is_a_value_and_little_else():
    message = Message("v")
    assert (message.value, message.key, message.message_id) == ("v", None, None)
    assert message.headers == {}
    assert message.headers is Message("w").headers is NO_HEADERS


def test_a_message_needs_a_value():
    with pytest.raises(TypeError):
        Message()


@every_message
def test_no_field_of_a_message_can_be_set_or_deleted(message):
    for name in message.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(message, name, "x")
        with pytest.raises((AttributeError, TypeError)):
            delattr(message, name)
    with pytest.raises(AttributeError):
        message.colour = "red"


@every_message
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_message_survives_pickling(message, protocol):
    again = pickle.loads(pickle.dumps(message, protocol))  # noqa: S301  # our own bytes
    assert again == message
    assert type(again) is type(message)
    assert type(again.headers) is Headers


@every_message
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_a_message_can_be_copied(message, make):
    again = make(message)
    assert again == message
    assert type(again) is type(message)
    assert again.headers == message.headers


def test_a_deep_copy_of_a_message_copies_its_value():
    message = Message(["v"])
    assert copy.deepcopy(message).value is not message.value


@every_message
def test_messages_with_equal_fields_are_equal_and_hash_alike(message):
    again = copy.copy(message)
    assert again == message
    assert hash(again) == hash(message)
    assert {message: 1}[again] == 1


def test_messages_that_differ_in_one_field_are_not_equal():
    fields = ("v", "k", NO_HEADERS, "id", "t", 2, 5, 1.5, 3, 4, 7)
    others = ("w", "l", Headers({"a": "b"}), "other", "u", 3, 6, 2.5, 4, 5, 8)
    for at, other in enumerate(others):
        changed = [*fields]
        changed[at] = other
        assert DeliveredMessage(*changed) != DeliveredMessage(*fields)


def test_the_hash_of_a_message_with_a_list_is_refused_as_that_of_the_list():
    with pytest.raises(TypeError, match="unhashable"):
        hash(Message(["v"]))


@every_message
def test_the_repr_of_a_message_names_every_field_with_its_value(message):
    text = repr(message)
    assert text.startswith(type(message).__name__ + "(")
    for name in message.__struct_fields__:
        assert f"{name}={getattr(message, name)!r}" in text


def test_what_is_delivered_is_a_stored_message_and_a_message():
    assert issubclass(DeliveredMessage, StoredMessage)
    assert issubclass(StoredMessage, Message)
    assert DeliveredMessage("v").delivery_attempt == 1


def test_a_delivery_with_another_value_is_the_same_delivery():
    message = MESSAGES[2]
    other = message.with_value("w")
    assert type(other) is DeliveredMessage
    assert (other.value, message.value) == ("w", "v")
    assert other.with_value("v") == message


# Headers

CHANGES = {
    "item": lambda h: h.__setitem__("a", "x"),
    "new item": lambda h: h.__setitem__("z", "x"),
    "del": lambda h: h.__delitem__("a"),
    "clear": lambda h: h.clear(),
    "pop": lambda h: h.pop("a"),
    "pop with default": lambda h: h.pop("z", None),
    "popitem": lambda h: h.popitem(),
    "setdefault": lambda h: h.setdefault("z", "x"),
    "setdefault of a known name": lambda h: h.setdefault("a", "x"),
    "update": lambda h: h.update({"a": "x"}),
    "update with nothing": lambda h: h.update(),
    "update by keyword": lambda h: h.update(a="x"),
    "|=": lambda h: h.__ior__({"a": "x"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_headers_refuse_every_change_and_tell_how_to_make_new_ones(change):
    headers = Headers({"a": "b", "n": None})
    with pytest.raises(TypeError, match=r"read-only; build a new dict: \{\*\*message\.headers"):
        change(headers)
    assert headers == {"a": "b", "n": None}


def test_the_statements_that_change_a_dict_are_refused_too():
    headers = Headers({"a": "b"})
    with pytest.raises(TypeError, match="read-only"):
        headers["a"] = "x"
    with pytest.raises(TypeError, match="read-only"):
        del headers["a"]
    with pytest.raises(TypeError, match="read-only"):
        headers |= {"a": "x"}
    assert headers == {"a": "b"}


def test_in_place_or_on_a_message_changes_nothing():
    message = Message("v", headers=Headers({"a": "b"}))
    with pytest.raises((TypeError, AttributeError)):
        message.headers |= {"a": "x"}
    assert message.headers == {"a": "b"}


def test_every_method_that_changes_a_dict_is_covered_above():
    reading = {"copy", "fromkeys", "get", "items", "keys", "values"}
    changing = {name for name in dir(dict) if not name.startswith("_")} - reading
    assert changing <= {name.split()[0] for name in CHANGES}


def test_headers_take_no_attributes():
    with pytest.raises(AttributeError):
        Headers().colour = "red"


def test_new_headers_are_built_from_old_ones_in_the_ways_of_a_dict():
    headers = Headers({"a": "b"})
    expected = {"a": "b", "c": "d"}
    assert {**headers, "c": "d"} == headers | {"c": "d"} == {"c": "d"} | headers == expected
    changed = headers.copy()
    changed["c"] = "d"
    assert changed == expected
    assert headers == {"a": "b"}


headers_dicts = st.dictionaries(
    st.text(max_size=4), st.none() | st.text(max_size=4) | st.binary(max_size=4), max_size=4
)


@examples(60)
@given(headers_dicts, headers_dicts)
def test_headers_compare_hash_copy_and_pickle_by_their_items(one, other):
    headers = Headers(one)
    assert headers == one
    assert (headers == Headers(other)) == (one == other)
    backwards = Headers(dict(reversed(one.items())))
    assert headers == backwards
    assert hash(headers) == hash(backwards)
    again = pickle.loads(pickle.dumps(headers))  # noqa: S301  # our own bytes
    assert again == headers
    assert type(again) is Headers
    assert list(again) == list(one)
    assert copy.copy(headers) is headers
    assert copy.deepcopy(headers) is headers
