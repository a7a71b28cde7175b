"""Dead letters: what is buried comes up again as its producer handed it in."""

from __future__ import annotations

import pytest
from core_support import examples
from hypothesis import given
from hypothesis import strategies as st

from dmq_actors import DeadLetterHeader, Headers, StoredMessage
from dmq_actors._core.dead_letters import bury, dead_letter_topic, exhume, is_dead_letter_topic
from dmq_actors._core.progress import Failure

FAILURE = Failure(3, "ValueError: no", 100.25, 200.5, 7.0)
ORIGINAL = StoredMessage("v", "k", Headers({"a": "b"}), "id-1", "orders", 2, 41, 99.125)


def stored_again(letter, topic="__dlq_orders"):
    return StoredMessage(letter.value, letter.key, letter.headers, "new", topic, 2, 0, 300.0)


def test_a_dead_letter_keeps_key_value_and_headers():
    letter = bury(ORIGINAL, "billing", FAILURE)
    assert (letter.value, letter.key) == ("v", "k")
    assert letter.headers["a"] == "b"
    assert letter.message_id is None


def test_its_headers_say_where_it_came_from_and_what_happened():
    letter = bury(ORIGINAL, "billing", FAILURE)
    assert {name: letter.headers[name] for name in DeadLetterHeader} == {
        "dmq-original-topic": "orders",
        "dmq-original-partition": "2",
        "dmq-original-offset": "41",
        "dmq-original-message-id": "id-1",
        "dmq-original-timestamp": "99.125",
        "dmq-group": "billing",
        "dmq-failures": "3",
        "dmq-last-error": "ValueError: no",
        "dmq-first-failed-at": "100.25",
        "dmq-last-failed-at": "200.5",
    }
    assert len(letter.headers) == 1 + len(DeadLetterHeader)


def test_the_names_of_its_headers_are_plain_text():
    letter = bury(ORIGINAL, "billing", FAILURE)
    assert {type(name) for name in letter.headers} == {str}
    assert {type(value) for value in letter.headers.values()} == {str}


def test_a_header_of_the_producer_with_a_name_of_the_brokers_gives_way():
    original = StoredMessage("v", headers=Headers({"dmq-group": "mine"}))
    assert bury(original, "billing", FAILURE).headers["dmq-group"] == "billing"


def test_times_keep_all_their_digits():
    failure = Failure(1, "", 1700000000.1234567, 1700000000.7654321, 0.0)
    letter = bury(ORIGINAL, "g", failure)
    assert float(letter.headers[DeadLetterHeader.FIRST_FAILED]) == failure.first
    assert float(letter.headers[DeadLetterHeader.LAST_FAILED]) == failure.last


@examples(60)
@given(
    st.none() | st.text() | st.lists(st.integers()),
    st.none() | st.text(max_size=5) | st.binary(max_size=5),
    st.dictionaries(
        st.text(max_size=6), st.none() | st.text(max_size=4) | st.binary(max_size=4), max_size=4
    ),
)
def test_bury_then_exhume_gives_what_the_producer_handed_in(value, key, headers):
    original = StoredMessage(value, key, Headers(headers), "id", "t", 0, 5, 1.0)
    message = exhume(stored_again(bury(original, "g", FAILURE)))
    assert (message.value, message.key, message.headers) == (value, key, headers)
    assert type(message.headers) is Headers
    assert message.message_id is None
    assert exhume(stored_again(bury(stored_again(message, "t"), "g", FAILURE))) == message


def test_headers_of_others_that_look_like_ours_survive():
    headers = Headers({"dmq-mine": "a", "DMQ-GROUP": "b", "dmq-original": "c"})
    original = StoredMessage("v", headers=headers)
    assert exhume(stored_again(bury(original, "g", FAILURE))).headers == headers


def test_a_dead_letter_topic_is_named_after_its_topic():
    assert dead_letter_topic("orders") == "__dlq_orders"


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("__dlq_orders", True), ("__dlq_", True), ("orders", False), ("_dlq_x", False),
     ("x__dlq_", False)],
)  # fmt: skip
def test_a_dead_letter_topic_is_known_by_its_name(topic, expected):
    assert is_dead_letter_topic(topic) is expected
