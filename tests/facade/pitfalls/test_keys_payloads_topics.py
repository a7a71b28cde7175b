"""Pitfalls of what goes in: keys, headers, values, names, times; and topics that vanish."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from textwrap import dedent
from zlib import crc32

import pytest
from support import WATCHDOG, Crew, all_at_once

from dmq_actors import (
    AckResult,
    Headers,
    InvalidArgumentError,
    InvalidTypeError,
    Message,
    MessageQueue,
    UnknownGroupError,
    UnknownTopicError,
)
from dmq_actors._core.partitioners import murmur2
from dmq_actors.testing import ManualClock


def values(messages):
    return [message.value for message in messages]


def start_python(script, **environment):
    """A child process; see `output_of`."""
    return subprocess.Popen(
        [sys.executable, "-c", dedent(script)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(child):
    """What a child process prints; it must succeed in time and without a word on stderr."""
    with child:
        try:
            out, err = child.communicate(timeout=3 * WATCHDOG)
        finally:
            child.kill()
    assert (child.returncode, err) == (0, "")
    return out


# P43

PINNED = {  # key: (crc32 % 7 as zlib has it, (murmur2 & 0x7fffffff) % 7 as Kafka's Java client)
    "": (0, 2),
    "a": (4, 5),
    "ab": (5, 0),
    "abc": (5, 4),
    "abcd": (4, 5),
    "user-1": (5, 3),
    "user-2": (3, 0),
    "user-42": (1, 1),
    "sensor-7": (6, 2),
    "order/2024/0001": (1, 1),
    "21": (6, 3),
    "foobar": (6, 0),
    "a-little-bit-long-string": (3, 1),
    "\u00e9": (4, 4),
    "e\u0301": (1, 2),
    "\u65e5\u672c\u8a9e": (5, 6),
    "\U0001f600": (6, 0),
    " ": (2, 2),
    "None": (4, 2),
    "x" * 300: (3, 0),
    b"\x00\xff\x80": (1, 1),
}


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_the_one_of_kafkas_own_tests(data, signed):
    """P43, kafka-python 374 and others: the vectors of Kafka's UtilsTest."""
    assert murmur2(data) == signed & 0xFFFFFFFF


@pytest.mark.parametrize(("at", "partitioner"), [(0, "crc32"), (1, "murmur2")])
def test_pinned_keys_stay_on_their_partitions(mq, at, partitioner):
    """P43, kafka-python 374 and others: this table never changes, in no process and version."""
    mq.create_topic("t", 7, partitioner=partitioner)
    for key, partitions in PINNED.items():
        assert mq.publish("t", Message(None, key)).partition == partitions[at], key
    stored = mq.publish_many("t", [Message(None, key) for key in PINNED])
    assert [m.partition for m in stored] == [partitions[at] for partitions in PINNED.values()]


def test_every_process_maps_keys_alike_whatever_its_hash_seed():
    """P43, kafka-python 374 and others: hash() and sets differ between processes."""
    script = """
        from dmq_actors import Message, MessageQueue
        keys = [f"user-{at}" for at in range(500)] + [b"%d" % at for at in range(500)]
        with MessageQueue() as mq:
            for partitioner in ("crc32", "murmur2"):
                mq.create_topic(partitioner, 7, partitioner=partitioner)
                stored = mq.publish_many(partitioner, [Message(None, key) for key in keys])
                print(*[message.partition for message in stored])
    """
    seeds = ("0", "1", "2", "random")
    children = [start_python(script, PYTHONHASHSEED=seed) for seed in seeds]
    printed = {output_of(child) for child in children}
    assert len(printed) == 1
    by_crc32, by_murmur2 = (list(map(int, line.split())) for line in printed.pop().splitlines())
    keys = [b"user-%d" % at for at in range(500)] + [b"%d" % at for at in range(500)]
    assert by_crc32 == [crc32(key) % 7 for key in keys]
    for partitions in (by_crc32, by_murmur2):
        counts = Counter(partitions)
        assert len(counts) == 7
        assert max(counts.values()) <= 2 * len(keys) / 7


# P45


@pytest.mark.parametrize("partitioner", ["crc32", "murmur2", lambda key, count: len(key) % count])
def test_text_and_its_utf8_bytes_are_the_same_key_and_come_back_as_they_went_in(mq, partitioner):
    """P45, kafka-python 1663: the key was converted before it was hashed, or after."""
    mq.create_topic("t", 7, partitioner=partitioner)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    stored = [mq.publish("t", Message(at, "u1")) for at in range(10)]
    stored += [mq.publish("t", Message(at, b"u1")) for at in range(10, 20)]
    assert len({message.partition for message in stored}) == 1
    polled = mq.poll("g", "c1", 100)
    assert values(polled) == list(range(20))
    assert [message.key for message in polled] == ["u1"] * 10 + [b"u1"] * 10


def test_composed_and_decomposed_text_are_two_keys_and_neither_is_changed(mq):
    """P45, kafka-python 1663: text is not normalised, its UTF-8 bytes are the key."""
    composed = "\u00e9"
    decomposed = unicodedata.normalize("NFD", composed)
    mq.create_topic("t", 7)
    for key in (composed, decomposed):
        stored = mq.publish("t", Message("v", key))
        assert (stored.key, stored.partition) == (key, crc32(key.encode()) % 7)


def test_no_key_and_no_value_stay_none_and_are_dealt_out(mq):
    """P45, kafka-python 1663: None became 'null', and everything landed in one partition."""
    mq.create_topic("t", 3)
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    stored = [mq.publish("t", Message(None)) for _ in range(6)]
    assert [message.partition for message in stored] == [0, 1, 2, 0, 1, 2]
    for message in mq.poll("g", "c1", 100):
        assert (message.key, message.value) == (None, None)


def test_empty_keys_are_keys(mq):
    """P45, kafka-python 1663: an empty key is not the absence of one."""
    mq.create_topic("t", 7)
    stored = mq.publish_many("t", [Message(None, key) for key in ("", b"", "", b"")])
    assert {message.partition for message in stored} == {crc32(b"") % 7}
    assert [message.key for message in stored] == ["", b"", "", b""]


# P47


def test_deleting_a_topic_wakes_who_waits_there_and_everything_else_answers(mq):
    """P47, kafka-go 1071 and others: the consumer retried for ever, without a word."""
    mq.create_topic("t", 2)
    mq.create_topic("other")
    mq.create_consumer_group("g", "t")
    mq.create_consumer_group("h", "other")
    mq.add_consumer("g", "c1")
    mq.add_consumer("h", "c1")
    mq.publish("t", Message("old"))
    [old] = mq.poll("g", "c1")
    woken: list[BaseException] = []

    def wait():
        with pytest.raises(UnknownGroupError) as error:
            mq.poll("g", "c1", timeout=30)
        woken.append(error.value)

    promise = mq.group_actor("g").poll("c1", timeout=30)
    with Crew() as crew:
        crew.start(wait)
        start = time.monotonic()
        mq.delete_topic("t")
        with pytest.raises(UnknownGroupError, match="'g'"):
            promise.get(timeout=WATCHDOG)
        assert time.monotonic() - start < 1.0
    assert "'g'" in str(woken[0])

    gone_group = [
        partial(mq.poll, "g", "c1"),
        partial(mq.poll, "g", "c1", timeout=None),
        partial(mq.commit, "g", "c1"),
        partial(mq.get_consumer_lag, "g"),
        partial(mq.get_group_info, "g"),
        partial(mq.seek, "g", 0, 0),
        partial(mq.add_consumer, "g", "c2"),
        partial(mq.remove_consumer, "g", "c1"),
        partial(mq.delete_consumer_group, "g"),
        partial(mq.group_actor, "g"),
    ]
    gone_topic = [
        partial(mq.get_topic_info, "t"),
        partial(mq.publish, "t", Message("new")),
        partial(mq.publish_many, "t", [Message("new")]),
        partial(mq.create_consumer_group, "g", "t"),
        partial(mq.partition_actor, "t", 0),
        partial(mq.redrive, "t"),
        partial(mq.delete_topic, "t"),
    ]
    for error, calls in ((UnknownGroupError, gone_group), (UnknownTopicError, gone_topic)):
        for call in calls:
            with pytest.raises(error):
                call()
    for success in (True, False):
        assert mq.acknowledge("g", old, success=success) is AckResult.STALE

    assert (mq.list_topics(), mq.list_consumer_groups()) == (["other"], ["h"])
    mq.publish("other", Message("v"))
    assert mq.get_consumer_lag("h") == {0: 1}
    assert values(mq.poll("h", "c1")) == ["v"]


def test_proxies_of_a_deleted_topic_say_that_it_was_deleted(mq):
    """P47, kafka-go 1071 and others: a reference that outlives what it refers to."""
    mq.create_topic("t", 1)
    mq.create_consumer_group("g", "t")
    partition, group = mq.partition_actor("t", 0), mq.group_actor("g")
    mq.delete_topic("t")
    with pytest.raises(UnknownTopicError, match="'t'"):
        partition.read(0).get(timeout=WATCHDOG)
    with pytest.raises(UnknownGroupError, match="'g'"):
        group.poll("c1", timeout=None).get(timeout=WATCHDOG)


def test_a_topic_made_anew_inherits_nothing(mq):
    """P47, kafka-go 1071 and others: an old message must not complete a new one."""
    for _ in range(2):
        mq.create_topic("t")
        mq.create_consumer_group("g", "t")
        mq.add_consumer("g", "c1")
        mq.publish("t", Message("v"))
        assert mq.get_consumer_lag("g") == {0: 1}
        [message] = mq.poll("g", "c1")
        assert (message.offset, message.delivery_attempt) == (0, 1)
        mq.delete_topic("t")
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    mq.publish("t", Message("v"))
    mq.poll("g", "c1")
    for success in (True, False):
        assert mq.acknowledge("g", message, success=success) is AckResult.STALE
    assert mq.get_consumer_lag("g") == {0: 1}


def test_of_several_that_delete_a_topic_at_once_exactly_one_does(mq):
    """P47, kafka-go 1071 and others (redpanda 264): two deletes, and both or none succeed."""
    for _ in range(30):
        mq.create_topic("t", 3)
        mq.create_consumer_group("g", "t")
        outcomes = all_at_once([partial(mq.delete_topic, "t")] * 3)
        assert outcomes.count(None) == 1
        assert sum(isinstance(outcome, UnknownTopicError) for outcome in outcomes) == 2
        assert (mq.list_topics(), mq.list_consumer_groups()) == ([], [])


# P49


@pytest.mark.parametrize("many", [False, True], ids=["publish", "publish_many"])
@pytest.mark.parametrize(
    ("headers", "stored"),
    [
        (None, {}),
        ({}, {}),
        ({"a": b"1"}, {"a": b"1"}),
        ({"a": "1"}, {"a": "1"}),
        ({"a": None}, {"a": None}),
        ({"": ""}, {"": ""}),
        ({"b": "1", "a": "2"}, {"b": "1", "a": "2"}),
        (Headers({"a": "1"}), {"a": "1"}),
    ],
    ids=repr,
)
def test_headers_in_an_accepted_form_come_back_in_order_and_read_only(mq, headers, stored, many):
    """P49, confluent-kafka-python 345 and others: which forms are taken is fixed."""
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c1")
    given = dict(headers) if type(headers) is dict else headers
    message = Message("v", headers=given)
    if many:
        mq.publish_many("t", [message])
    else:
        mq.publish("t", message)
    if type(given) is dict:
        given["later"] = "changed by the caller after the publish"
    [polled] = mq.poll("g", "c1")
    assert polled.headers == stored
    assert list(polled.headers) == list(stored)
    with pytest.raises(TypeError, match="read-only"):
        polled.headers["x"] = "y"


@pytest.mark.parametrize("many", [False, True], ids=["publish", "publish_many"])
@pytest.mark.parametrize(
    "headers",
    [
        [("a", b"1"), ("a", b"2")],
        (("a", b"1"),),
        {1: b"x"},
        {b"a": b"x"},
        {None: b"x"},
        {"a": 1},
        {"a": 1.5},
        {"a": True},
        {"a": ["x"]},
        {"a": bytearray(b"x")},
        "abc",
        b"abc",
        5,
        Headers({1: b"x"}),
        Headers({"a": ["x"]}),
    ],
    ids=repr,
)
def test_headers_of_a_wrong_type_are_refused_by_the_publish_itself(mq, headers, many):
    """P49, confluent-kafka-python 345 and others: the error came with some later call."""
    mq.create_topic("t")
    message = Message("v", headers=headers)
    publish = (
        partial(mq.publish_many, "t", [Message("fine"), message])
        if many
        else partial(mq.publish, "t", message)
    )
    with pytest.raises(TypeError) as refused:
        publish()
    assert isinstance(refused.value, InvalidTypeError)
    assert "header" in str(refused.value)
    assert mq.get_topic_info("t").published_total == 0


# P51

BAD_NAMES = ["", ".", "..", "a" * 250, "a b", "t\u00e9", "te\u0301", "a/b", "\n", "t\n", "a\x00"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_bad_topic_name_is_refused_and_the_rule_is_named(mq, name):
    """P51, ns4kafka 63 and others: at create_topic and at publish, and nothing is created."""
    for call in (
        partial(mq.create_topic, name),
        partial(mq.publish, name, Message("v")),
        partial(mq.publish_many, name, [Message("v")]),
        partial(mq.create_consumer_group, "g", name),
    ):
        with pytest.raises(ValueError, match=r"1 to 249 of the characters A-Z a-z 0-9 \. _ -"):
            call()
    assert (mq.list_topics(), mq.list_consumer_groups()) == ([], [])


@pytest.mark.parametrize("name", [5, None, b"t", ["t"], 2.0, True], ids=repr)
def test_a_topic_name_of_a_wrong_type_is_refused(mq, name):
    """P51, ns4kafka 63 and others: here it is not even text."""
    for call in (partial(mq.create_topic, name), partial(mq.publish, name, Message("v"))):
        with pytest.raises(InvalidTypeError, match=type(name).__name__):
            call()
    assert mq.list_topics() == []


def test_a_topic_is_never_created_by_a_typo(mq):
    """P51, ns4kafka 63 and others: publishing to an unknown topic creates none."""
    mq.create_topic("topic")
    for call in (
        partial(mq.publish, "topci", Message("v")),
        partial(mq.create_consumer_group, "g", "topci"),
        partial(mq.redrive, "topci"),
    ):
        with pytest.raises(UnknownTopicError, match="'topci'"):
            call()
    assert mq.list_topics() == ["topic"]


def test_names_that_look_alike_are_separate_topics_with_separate_dead_letters(mq):
    """P51, ns4kafka 63 and others: a.b and a_b collided in names derived from them."""
    names = ["T", "t", "a.b", "a_b", "a-b", "x.dlq", "x", "dlq_x", "_", "...", "a" * 249]
    for name in names:
        mq.create_topic(name)
        mq.create_consumer_group(name, name, max_failures=1)
        mq.add_consumer(name, "c1")
        mq.publish(name, Message(name))
    for name in names:
        [message] = mq.poll(name, "c1")
        assert message.value == name
        assert mq.acknowledge(name, message, success=False) is AckResult.DEAD_LETTERED
    assert mq.list_topics() == names + [f"__dlq_{name}" for name in names]
    for name in names:
        morgue = f"dead.{names.index(name)}"
        mq.create_consumer_group(morgue, f"__dlq_{name}")
        mq.add_consumer(morgue, "c1")
        assert values(mq.poll(morgue, "c1")) == [name]
        assert mq.get_topic_info(f"__dlq_{name}").message_count == 1
        assert values(mq.redrive(name)) == [name]


def test_users_cannot_make_topics_in_the_brokers_name_space(mq):
    """P51, ns4kafka 63 and others: a user's topic collided with an internal one."""
    for name in ("__dlq_", "__dlq_t", "__dlq___dlq_t"):
        with pytest.raises(InvalidArgumentError, match="__dlq_"):
            mq.create_topic(name)
    assert mq.list_topics() == []


def test_a_group_of_a_user_is_never_taken_for_one_of_the_brokers_own(mq):
    """P51, ns4kafka 63 and others: redrive keeps its place in a group; here is one of its name.

    Either the name is refused, or redrive leaves that group and what it reads alone.
    """
    mq.create_topic("t")
    mq.create_topic("other")
    mq.create_consumer_group("g", "t", max_failures=1)
    mq.add_consumer("g", "c1")
    mq.publish("t", Message("dead"))
    mq.publish("other", Message("alien"))
    [message] = mq.poll("g", "c1")
    assert mq.acknowledge("g", message, success=False) is AckResult.DEAD_LETTERED
    with suppress(InvalidArgumentError):
        mq.create_consumer_group("__redrive_t", "other")
    assert values(mq.redrive("t")) == ["dead"]
    assert values(mq.poll("g", "c1")) == ["dead"]
    mine = [name for name in mq.list_consumer_groups() if mq.get_group_info(name).topic == "other"]
    assert [mq.get_consumer_lag(name) for name in mine] == [{0: 1}] * len(mine)


# P53


def test_the_broker_stamps_utc_seconds_whatever_the_time_zone():
    """P53, kcat 270 and others: -1 for a time, local time, seconds taken for milliseconds."""
    script = """
        import time
        from datetime import UTC, datetime
        from dmq_actors import Message, MessageQueue
        assert time.timezone == -9 * 3600
        with MessageQueue() as mq:
            mq.create_topic("t")
            before, utc = time.time(), datetime.now(UTC)
            stamp = mq.publish("t", Message("v")).timestamp
            assert type(stamp) is float
            assert before <= stamp <= time.time()
            assert abs(datetime.fromtimestamp(stamp, UTC) - utc).total_seconds() < 60
    """
    assert output_of(start_python(script, TZ="Asia/Tokyo")) == ""


def test_zero_is_a_time_like_any_other():
    """P53, kcat 270 and others: 0 taken for 'no time given'."""
    with MessageQueue(clock=ManualClock(time=0.0)) as mq:
        mq.create_topic("t")
        mq.create_consumer_group("g", "t", max_failures=1)
        mq.add_consumer("g", "c1")
        assert mq.publish("t", Message("v")).timestamp == 0.0
        [message] = mq.poll("g", "c1")
        assert message.timestamp == 0.0
        mq.acknowledge("g", message, success=False)
        [letter] = mq.partition_actor("__dlq_t", 0).read(0).get(timeout=WATCHDOG)
        assert letter.headers["dmq-original-timestamp"] == "0.0"
        assert letter.headers["dmq-first-failed-at"] == "0.0"


def test_a_message_published_again_gets_a_time_of_its_own(manual_mq, clock):
    """P53, kcat 270 and others: the stamp is the broker's, not what a message brings along."""
    manual_mq.create_topic("t")
    first = manual_mq.publish("t", Message("v"))
    clock.advance(5)
    second = manual_mq.publish("t", first)
    assert (second.offset, second.timestamp) == (1, first.timestamp + 5)


def test_datetimes_are_values_like_any_other_and_come_back_as_they_went_in(mq):
    """P53, kcat 270 and others: a naive datetime was read in the local zone."""
    given = [
        datetime(2024, 3, 31, 2, 30),  # noqa: DTZ001  # naive is the point
        datetime(2024, 3, 31, 2, 30, tzinfo=UTC),
        datetime(2024, 3, 31, 2, 30, tzinfo=timezone(timedelta(hours=9))),
    ]
    mq.create_topic("t")
    polled = values(mq.publish_many("t", [Message(value) for value in given]))
    assert polled == given
    assert [value.tzinfo for value in polled] == [value.tzinfo for value in given]


def test_offsets_go_on_when_the_clock_is_set_back(manual_mq, clock):
    """P53, kcat 270 and others: order is told by offsets, not by times."""
    manual_mq.create_topic("t")
    manual_mq.create_consumer_group("g", "t")
    manual_mq.add_consumer("g", "c1")
    first = manual_mq.publish("t", Message("before"))
    clock.set_time(clock.time() - 3_600)
    second = manual_mq.publish("t", Message("after"))
    assert (first.offset, second.offset) == (0, 1)
    assert second.timestamp == first.timestamp - 3_600
    assert values(manual_mq.poll("g", "c1")) == ["before", "after"]


@pytest.mark.parametrize("jump", [-86_400 * 365, 86_400 * 365])
def test_a_clock_that_jumps_neither_deletes_new_messages_nor_keeps_old_ones(manual_mq, clock, jump):
    """P53, kcat 270 and others: retention by age goes by a clock that does not jump."""
    manual_mq.create_topic("t", retention_seconds=60)
    manual_mq.publish("t", Message("old"))
    clock.advance(40)
    clock.set_time(clock.time() + jump)
    manual_mq.publish("t", Message("new"))
    assert manual_mq.get_topic_info("t").message_count == 2
    clock.advance(21)
    [left] = manual_mq.partition_actor("t", 0).read(0).get(timeout=WATCHDOG)
    assert left.value == "new"
    clock.advance(40)
    assert manual_mq.get_topic_info("t").message_count == 0
