"""`Batch`: messages checked, copied and routed, all of them or none."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from core_support import examples
from hypothesis import given
from hypothesis import strategies as st

from dmq_actors import (
    DeliveredMessage,
    Headers,
    InvalidArgumentError,
    InvalidTypeError,
    Message,
    StoredMessage,
    TopicConfig,
    UnknownPartitionError,
)
from dmq_actors._core.batch import ROUND_ROBIN, freeze_headers, prepare
from dmq_actors._core.partitioners import KEY_HASHES
from dmq_actors.messages import NO_HEADERS

THREE = TopicConfig(num_partitions=3)


def test_plain_messages_are_taken_as_they_are():
    messages = [Message("a"), Message(b"b", "k"), Message(None)]
    batch = prepare(THREE, messages)
    assert all(new is old for new, old in zip(batch.messages, messages, strict=True))
    assert (batch.copied, batch.named, batch.sizes) == (False, False, [])


def test_an_empty_batch_is_fine():
    batch = prepare(THREE, [])
    assert (batch.messages, batch.partitions, batch.sizes) == ([], [], [])


def test_any_iterable_is_taken_once():
    batch = prepare(THREE, (Message(number) for number in range(3)))
    assert [message.value for message in batch.messages] == [0, 1, 2]


def test_a_mutable_value_is_copied_and_the_batch_says_so():
    value = [1]
    batch = prepare(THREE, [Message("a"), Message(value)])
    value.append(2)
    assert batch.messages[1].value == [1]
    assert batch.copied


def test_shared_values_are_taken_as_they_are_even_if_they_cannot_be_copied():
    value = (n for n in ())
    batch = prepare(TopicConfig(share_values=True), [Message(value)])
    assert batch.messages[0].value is value
    assert not batch.copied


def test_a_tuple_of_immutables_needs_no_copy():
    assert not prepare(THREE, [Message((1, "a"))]).copied
    assert prepare(THREE, [Message((1, ["a"]))]).copied


def test_an_id_of_the_producers_own_is_kept_and_the_batch_says_so():
    batch = prepare(THREE, [Message("a"), Message("b", message_id="mine")])
    assert [message.message_id for message in batch.messages] == [None, "mine"]
    assert batch.named


@pytest.mark.parametrize("kind", [StoredMessage, DeliveredMessage])
def test_a_message_published_again_gets_a_new_id_and_keeps_value_key_and_headers(kind):
    old = kind("v", "k", Headers({"h": "x"}), "old-id", "other", 2, 5, 1.0)
    [new] = prepare(THREE, [old]).messages
    assert type(new) is Message
    assert (new.value, new.key, new.headers) == ("v", "k", {"h": "x"})
    assert new.message_id is None


def test_headers_are_frozen_and_cut_off_from_the_callers_dict():
    headers = {"a": "b"}
    [message] = prepare(THREE, [Message("v", headers=headers)]).messages
    headers["a"] = "changed"
    assert message.headers == {"a": "b"}
    assert type(message.headers) is Headers


@pytest.mark.parametrize("wrong", ["text", b"bytes", None, 5, {"value": 1}, ["m"]])
def test_what_is_no_message_is_refused_with_the_way_to_wrap_it(wrong):
    name = type(wrong).__name__
    with pytest.raises(InvalidTypeError, match=rf"a Message, found {name}; .*Message\(value\)"):
        prepare(THREE, [Message("ok"), wrong])


@pytest.mark.parametrize("wrong", ["", 5, b"id", True, 0])
def test_a_message_id_is_text_that_is_not_empty(wrong):
    with pytest.raises(InvalidTypeError, match=f"non-empty str or None, found {wrong!r}"):
        prepare(THREE, [Message("v", message_id=wrong)])


@pytest.mark.parametrize("wrong", [5, 1.5, ("a",), bytearray(b"k"), False])
@pytest.mark.parametrize("partition", [None, 0])
@pytest.mark.parametrize("partitioner", ["crc32", "murmur2", lambda _key, _count: 0])
def test_a_key_of_a_wrong_type_is_refused_however_it_is_routed(wrong, partition, partitioner):
    config = TopicConfig(3, partitioner=partitioner)
    with pytest.raises(InvalidTypeError, match=f"found {type(wrong).__name__}"):
        prepare(config, [Message("v", wrong)], partition)


@pytest.mark.parametrize("partition", [None, 0])
@pytest.mark.parametrize("partitioner", ["crc32", "murmur2", lambda _key, _count: 0])
def test_a_key_without_a_utf8_form_is_refused_however_it_is_routed(partition, partitioner):
    config = TopicConfig(3, partitioner=partitioner)
    with pytest.raises(InvalidArgumentError, match="cannot be encoded as UTF-8"):
        prepare(config, [Message("v", "\udcff")], partition)


# Headers


@pytest.mark.parametrize("nothing", [None, {}, OrderedDict(), NO_HEADERS])
def test_no_headers_are_always_the_same_object(nothing):
    assert freeze_headers(nothing) is NO_HEADERS


def test_frozen_headers_are_taken_as_they_are():
    headers = Headers({"a": "b"})
    assert freeze_headers(headers) is headers


def test_text_bytes_and_none_are_kept_as_header_values_in_order():
    headers = freeze_headers({"z": "text", "a": b"bytes", "": None})
    assert list(headers.items()) == [("z", "text"), ("a", b"bytes"), ("", None)]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ([("a", "b")], "found list; .*only once"),
        ("a=b", "found str"),
        (5, "found int"),
        ({1: "a"}, "a header name is a str, found int 1"),
        ({b"a": "a"}, "a header name is a str, found bytes b'a'"),
        ({None: "a"}, "a header name is a str, found NoneType None"),
        ({"a": 5}, r"header 'a' must be str, bytes or None, found int; .*str\(value\)"),
        ({"a": True}, "found bool"),
        ({"a": ["b"]}, "found list"),
        ({"a": bytearray(b"b")}, "found bytearray"),
    ],
)
def test_wrong_headers_are_refused_with_what_was_found(wrong, text):
    with pytest.raises(InvalidTypeError, match=text):
        freeze_headers(wrong)
    with pytest.raises(InvalidTypeError, match=text):
        prepare(THREE, [Message("v", headers=wrong)])


# Routing


def test_a_message_without_a_key_is_left_to_the_coordinator():
    assert prepare(THREE, [Message("a"), Message("b", "k")]).partitions[0] == ROUND_ROBIN


@examples(60)
@given(
    st.lists(st.none() | st.text(max_size=5) | st.binary(max_size=5), max_size=8),
    st.integers(1, 9),
    st.sampled_from(["crc32", "murmur2"]),
)
def test_a_key_goes_where_its_hash_says_and_text_goes_with_its_utf8(keys, count, name):
    def expected(key):
        if key is None:
            return ROUND_ROBIN
        return KEY_HASHES[name](key if isinstance(key, bytes) else key.encode()) % count

    config = TopicConfig(count, partitioner=name)
    found = prepare(config, [Message("v", key) for key in keys]).partitions
    assert found == list(map(expected, keys))
    as_bytes = [key.encode() if isinstance(key, str) else key for key in keys]
    assert prepare(config, [Message("v", key) for key in as_bytes]).partitions == found


def test_a_function_of_the_user_gets_the_bytes_of_the_key_and_the_count():
    asked = []

    def mine(key, count):
        asked.append((key, count))
        return len(key) % count

    config = TopicConfig(3, partitioner=mine)
    batch = prepare(config, [Message(1, "ü"), Message(2, b""), Message(3)])
    assert batch.partitions == [2, 0, ROUND_ROBIN]
    assert asked == [("ü".encode(), 3), (b"", 3)]


@pytest.mark.parametrize("answer", [-1, 3, 1.0, "1", None, True, 10**30])
def test_a_function_that_answers_with_no_partition_is_refused(answer):
    config = TopicConfig(3, partitioner=lambda _key, _count: answer)
    with pytest.raises(InvalidArgumentError, match=r"answered .*; it must answer an int.* 0 to 2"):
        prepare(config, [Message("v", "k")])


def test_an_error_of_the_users_function_reaches_its_caller():
    def mine(_key, _count):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        prepare(TopicConfig(3, partitioner=mine), [Message("v", "k")])


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_a_partition_that_is_named_takes_all_keys_or_not(partition):
    batch = prepare(THREE, [Message("a"), Message("b", "k")], partition)
    assert batch.partitions == [partition, partition]


@pytest.mark.parametrize("partition", [3, 99, 10**20])
def test_a_partition_beyond_the_topic_is_refused_with_the_range(partition):
    with pytest.raises(UnknownPartitionError, match=f"no partition {partition}.*0 to 2"):
        prepare(THREE, [Message("a")], partition)


@pytest.mark.parametrize(
    ("partition", "error"),
    [(-1, InvalidArgumentError), (True, InvalidTypeError), (1.0, InvalidTypeError)],
)
def test_a_partition_that_is_no_number_from_0_is_refused(partition, error):
    with pytest.raises(error, match="partition"):
        prepare(THREE, [Message("a")], partition)


def test_sizes_are_taken_only_where_the_topic_counts_bytes():
    config = TopicConfig(retention_bytes=100)
    assert prepare(config, [Message("abc", "k"), Message(5)]).sizes == [4, 8]


# Splitting


@examples(60)
@given(st.lists(st.integers(0, 4), max_size=12), st.booleans())
def test_a_split_batch_put_together_again_is_the_batch(partitions, sized):
    config = TopicConfig(5, retention_bytes=100 if sized else None)
    batch = prepare(config, [Message("x" * at) for at in range(len(partitions))])
    parts = batch.split(partitions)
    assert list(parts) == list(dict.fromkeys(partitions))
    together = {}
    for partition, (places, part) in parts.items():
        assert places == sorted(places)
        assert all(partitions[place] == partition for place in places)
        assert part.sizes == ([len(m.value) for m in part.messages] if sized else [])
        together |= dict(zip(places, part.messages, strict=True))
    assert [together[place] for place in range(len(partitions))] == batch.messages


def test_the_parts_of_a_batch_know_what_the_batch_knows():
    batch = prepare(THREE, [Message([1]), Message("b", message_id="mine")])
    for _, part in batch.split([0, 1]).values():
        assert (part.copied, part.named) == (True, True)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_batch_in_chunks_is_the_batch_in_order(size):
    config = TopicConfig(3, retention_bytes=1000)
    batch = prepare(config, [Message(number, f"k{number}") for number in range(7)])
    chunks = list(batch.chunks(size))
    assert all(1 <= len(chunk.messages) <= size for chunk in chunks)
    for name in ("messages", "partitions", "sizes"):
        assert [item for chunk in chunks for item in getattr(chunk, name)] == getattr(batch, name)
