"""Whatever a caller gets wrong: a typed error that names it, and nothing has changed.

One table says for each parameter of each public method what is wrong; the facade and the proxies
are both held to it. Wrong types must be a `TypeError` and a `ValueError` at once, wrong values a
`ValueError`; all of them are a `DMQError`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Mapping
from functools import partial

import msgspec
import pytest
from support import WATCHDOG

from dmq_actors import (
    AckResult,
    AsyncConsumer,
    Consumer,
    DMQError,
    Headers,
    InvalidArgumentError,
    Message,
    MessageQueue,
    UnknownPartitionError,
)

NAN, INF, HUGE = float("nan"), float("inf"), 10**400

# What is of a wrong type where text, an int, a number of seconds … is expected

NOT_TEXT = [None, 7, 2.5, True, b"t", ["t"], {"t": 1}]
NOT_INT = [None, 2.5, 1.0, True, "1", b"1", [1]]
NOT_SECONDS = [True, "1", b"1", [1], 1j]
NOT_BOOL = [None, 0, 1, 1.0, "yes", b"", []]
NOT_MAPPING = [7, 2.5, True, "0", b"0", [(0, 1)]]
NOT_MESSAGE = [None, 7, 2.5, True, b"v", "v", ["v"], {"value": "v"}]
NOT_ITERABLE = [None, 7, 2.5, True, Message("v")]

# What is of the right type and still wrong

BAD_NAMES = ["", ".", "..", "a b", "a/b", "t\n", "t\u00e9", "\ud800", "a" * 250]
BAD_SECONDS = [-1, -0.001, NAN, INF, -INF, HUGE]
BAD_TIMEOUT = {"type": [None, *NOT_SECONDS], "value": BAD_SECONDS}
UNKNOWN_TOPIC = {"type": NOT_TEXT, "value": [*BAD_NAMES, "nope", "T", "__dlq_nope"]}
UNKNOWN_GROUP = {"type": NOT_TEXT, "value": [*BAD_NAMES, "nope", "G"]}
BAD_CONSUMER_IDS = ["", "a\n", "\x00", "a" * 250, "\ud800"]

BAD_MESSAGES = {
    "type": [
        *NOT_MESSAGE,
        *(Message("v", key) for key in (7, 2.5, True, bytearray(b"k"), ["k"])),
        *(Message("v", headers=headers) for headers in (7, "a", [("a", "b")], {1: "a"}, {"a": 1})),
        Message("v", headers=Headers({"a": 1})),
        *(Message("v", message_id=name) for name in (7, b"id", ["id"], True)),
    ],
    "value": [Message("v", "\ud800"), Message(threading.Lock()), Message("v", message_id="")],
}

TOPIC_OPTIONS = {
    "num_partitions": {"type": NOT_INT, "value": [0, -1, 10_001, HUGE]},
    "retention_count": {"type": NOT_INT[1:], "value": [0, -1]},
    "retention_bytes": {"type": NOT_INT[1:], "value": [0, -1]},
    "retention_seconds": {"type": NOT_SECONDS, "value": [0, *BAD_SECONDS]},
    "partitioner": {"type": [None, 7, 2.5, True, b"crc32", ["crc32"]], "value": ["md5", ""]},
    "share_values": {"type": NOT_BOOL, "value": []},
    "dead_letters": {
        "type": [
            *(7, 2.5, True, "retention_count", b"r", [("retention_count", 1)]),
            *({"retention_count": count} for count in ("1", 1.0, True)),
            {"retention_seconds": "1"},
        ],
        "value": [
            *({"retention": 1}, {1: 1}, {"retention_count": 1, "num_partitions": 2}),
            *({"retention_count": 0}, {"retention_bytes": -1}),
            *({"retention_seconds": seconds} for seconds in (0, NAN, INF, HUGE)),
        ],
    },
}

GROUP_OPTIONS = {
    "delivery": {"type": NOT_TEXT, "value": ["", "at_least", "AT_LEAST_ONCE"]},
    "start_from": {"type": NOT_TEXT, "value": ["", "beginning"]},
    "assignor": {"type": NOT_TEXT, "value": ["", "random"]},
    "max_failures": {"type": NOT_INT, "value": [0, -1]},
    "retry_backoff": BAD_TIMEOUT,
    "retry_backoff_max": BAD_TIMEOUT,
    "retry_order": {"type": NOT_TEXT, "value": ["", "topic"]},
    "on_offset_lost": {"type": NOT_TEXT, "value": ["", "ignore"]},
}

OFFSETS = {
    "type": [
        *NOT_MAPPING,
        *({partition: 1} for partition in ("0", 0.0, None, True, b"0")),
        *({0: offset} for offset in ("1", 1.0, None, True, b"1")),
    ],
    # committed: 1 and 0, current: 2 and 2
    "value": [{-1: 1}, {2: 1}, {HUGE: 1}, {0: -1}, {0: 0}, {0: 3}, {0: HUGE}, {0: 2, 1: 3}],
}

POLL = {
    "consumer_id": {"type": NOT_TEXT, "value": BAD_CONSUMER_IDS},
    "max_messages": {"type": NOT_INT, "value": [0, -1]},
    "timeout": {"type": NOT_SECONDS, "value": BAD_SECONDS},
}

SEEK = {
    "partition": {"type": NOT_INT, "value": [-1, 2, HUGE]},
    "offset": {"type": NOT_INT, "value": [-3, -1001, 4, HUGE, -HUGE]},
}

JOIN = {"consumer_id": {"type": NOT_TEXT, "value": [*BAD_CONSUMER_IDS, "c"]}}
LEAVE = {"consumer_id": {"type": NOT_TEXT, "value": [*BAD_CONSUMER_IDS, "nobody"]}}

ACKNOWLEDGE = {
    "message": {"type": [*NOT_MESSAGE, Message("v")], "value": []},
    "success": {"type": NOT_BOOL, "value": []},
}

NOT_A_FUNCTION = {"type": [7, 2.5, True, "f", b"f", [1]], "value": []}
NOT_AN_ERROR = {"type": [7, 2.5, True, b"e", ["e"]], "value": []}

BAD_BATCHES = {
    "type": [*NOT_ITERABLE, "v", b"v", *([Message("v"), bad] for bad in BAD_MESSAGES["type"])],
    "value": [[Message("v"), bad] for bad in BAD_MESSAGES["value"]],
}

FACADE = {  # method: (arguments that are right, what is wrong by parameter)
    "create_topic": (
        {"topic": "new"},
        {"topic": {"type": NOT_TEXT, "value": [*BAD_NAMES, "__dlq_x", "t"]}, **TOPIC_OPTIONS},
    ),
    "delete_topic": ({"topic": "t"}, {"topic": UNKNOWN_TOPIC}),
    "get_topic_info": ({"topic": "t"}, {"topic": UNKNOWN_TOPIC}),
    "publish": (
        {"topic": "t", "message": Message("v")},
        {
            "topic": UNKNOWN_TOPIC,
            "message": BAD_MESSAGES,
            "partition": {"type": NOT_INT[1:], "value": [-1, 2, HUGE]},
            "timeout": BAD_TIMEOUT,
        },
    ),
    "publish_many": (
        {"topic": "t", "messages": [Message("v")]},
        {"topic": UNKNOWN_TOPIC, "messages": BAD_BATCHES, "timeout": BAD_TIMEOUT},
    ),
    "create_consumer_group": (
        {"group_id": "new", "topic": "t"},
        {
            "group_id": {"type": NOT_TEXT, "value": [*BAD_NAMES, "g"]},
            "topic": UNKNOWN_TOPIC,
            **GROUP_OPTIONS,
        },
    ),
    "delete_consumer_group": ({"group_id": "g"}, {"group_id": UNKNOWN_GROUP}),
    "get_group_info": ({"group_id": "g"}, {"group_id": UNKNOWN_GROUP}),
    "add_consumer": (
        {"group_id": "g", "consumer_id": "new"},
        {"group_id": UNKNOWN_GROUP, **JOIN},
    ),
    "remove_consumer": (
        {"group_id": "g", "consumer_id": "c"},
        {"group_id": UNKNOWN_GROUP, **LEAVE},
    ),
    "poll": ({"group_id": "g", "consumer_id": "c"}, {"group_id": UNKNOWN_GROUP, **POLL}),
    "seek": (
        {"group_id": "g", "partition": 0, "offset": 0},
        {"group_id": UNKNOWN_GROUP, **SEEK},
    ),
    "commit": (
        {"group_id": "g", "consumer_id": "c"},
        {"group_id": UNKNOWN_GROUP, **LEAVE, "offsets": OFFSETS},
    ),
    "acknowledge": (
        {"group_id": "g", "message": ..., "success": False},
        {
            "group_id": UNKNOWN_GROUP,
            **ACKNOWLEDGE,
            "error": NOT_AN_ERROR,
        },
    ),
    "get_consumer_lag": ({"group_id": "g"}, {"group_id": UNKNOWN_GROUP}),
    "redrive": (
        {"topic": "t"},
        {
            "topic": UNKNOWN_TOPIC,
            "max_messages": {"type": NOT_INT[1:], "value": [-1]},
            "repair": {"type": [7, "repair", b"repair", [1], True], "value": []},
            "timeout": BAD_TIMEOUT,
        },
    ),
    "partition_actor": (
        {"topic": "t", "partition": 0},
        {"topic": UNKNOWN_TOPIC, "partition": {"type": NOT_INT, "value": [-1, 2, HUGE]}},
    ),
    "group_actor": ({"group_id": "g"}, {"group_id": UNKNOWN_GROUP}),
    "workers": (
        {"group_id": "h", "handler": print},
        {
            "group_id": UNKNOWN_GROUP,
            "handler": NOT_A_FUNCTION,
            "concurrency": {"type": NOT_INT, "value": [0, -1, 10_001]},
            "batch_size": {"type": NOT_INT[1:], "value": [0, -1]},
            "executor": {"type": [7, "e", [1], True], "value": []},
            "max_poll": {"type": NOT_INT, "value": [0, -1]},
            "max_poll_interval": {"type": NOT_SECONDS, "value": [0, *BAD_SECONDS]},
        },
    ),
    "wait_idle": (
        {},
        {
            "topic": {"type": NOT_TEXT[1:], "value": UNKNOWN_TOPIC["value"]},
            "group": {"type": NOT_TEXT[1:], "value": UNKNOWN_GROUP["value"]},
            "timeout": BAD_TIMEOUT,
            "expected": {"type": [None, 7, "ValueError", int, (ValueError, 7)], "value": []},
        },
    ),
    "consumer": (
        {"group_id": "h"},
        {
            "group_id": UNKNOWN_GROUP,
            "consumer_id": {"type": NOT_TEXT[1:], "value": [*BAD_CONSUMER_IDS, "c"]},
            "max_poll": {"type": NOT_INT, "value": [0, -1]},
            "max_poll_interval": {"type": NOT_SECONDS, "value": [0, *BAD_SECONDS]},
            "session_timeout": {"type": NOT_SECONDS, "value": [0, *BAD_SECONDS]},
            **dict.fromkeys(("on_assigned", "on_revoked", "on_lost"), NOT_A_FUNCTION),
        },
    ),
    "close": ({}, {"timeout": BAD_TIMEOUT}),
    "producer": (
        {},
        {
            "topic": {"type": NOT_TEXT[1:], "value": UNKNOWN_TOPIC["value"]},
            "linger": BAD_TIMEOUT,
            "batch_size": {"type": NOT_INT, "value": [0, -1]},
            "max_in_flight": {"type": NOT_INT, "value": [0, -1]},
            "max_block": BAD_TIMEOUT,
        },
    ),
}

PRODUCER = {
    "send": (
        {"topic": "t", "message": Message("v")},
        {name: FACADE["publish"][1][name] for name in ("topic", "message", "partition")},
    ),
    "flush": ({}, {"timeout": BAD_TIMEOUT}),
    "close": ({}, {"timeout": BAD_TIMEOUT}),
}


def part(method, *names, without=()):
    """Of a method of the facade what its counterpart on a proxy has, too."""
    good, bad = FACADE[method]
    return (
        {name: value for name, value in good.items() if name not in without},
        {name: values for name, values in bad.items() if name in names},
    )


COORDINATOR = {
    "create_topic": part("create_topic", "topic", *TOPIC_OPTIONS),
    "delete_topic": part("delete_topic", "topic"),
    "get_topic_info": part("get_topic_info", "topic"),
    "publish": part("publish", "topic", "message", "partition"),
    "publish_many": part("publish_many", "topic", "messages"),
    "create_consumer_group": part("create_consumer_group", "group_id", "topic", *GROUP_OPTIONS),
    "delete_consumer_group": part("delete_consumer_group", "group_id"),
    "add_consumer": part("add_consumer", "group_id", "consumer_id"),
    "remove_consumer": part("remove_consumer", "group_id", "consumer_id"),
}

GROUP = {
    "add_consumer": part("add_consumer", *JOIN, without=["group_id"]),
    "remove_consumer": part("remove_consumer", *LEAVE, without=["group_id"]),
    "poll": part("poll", *POLL, without=["group_id"]),
    "seek": part("seek", *SEEK, without=["group_id"]),
    "commit": part("commit", "consumer_id", "offsets", without=["group_id"]),
    "acknowledge": (
        {"message": ..., "success": False},
        {
            **ACKNOWLEDGE,
            "error": NOT_AN_ERROR,
        },
    ),
}

PARTITION = {
    "read": (
        {"offset": 0},
        {
            "offset": {"type": NOT_INT, "value": [-1, -2]},
            "max_messages": {"type": NOT_INT, "value": [-1]},
        },
    ),
}

BAD_DELIVERIES = {"type": [*NOT_ITERABLE, "v", b"v", [7], ["v"]], "value": []}

CONSUMER = {
    "poll": (
        {},
        {"max_messages": {"type": NOT_INT[1:], "value": [0, -1]}, "timeout": POLL["timeout"]},
    ),
    "ack": ({"message": ...}, {"message": ACKNOWLEDGE["message"]}),
    "ack_many": ({"messages": []}, {"messages": BAD_DELIVERIES}),
    "nack": ({"message": ...}, {"message": ACKNOWLEDGE["message"], "error": NOT_AN_ERROR}),
    "give_back": ({"messages": []}, {"messages": BAD_DELIVERIES}),
    "commit": ({}, {"offsets": OFFSETS}),
    "seek": ({"partition": 0, "offset": 0}, SEEK),
    "seek_to_timestamp": (
        {"timestamp": 0.0},
        {"timestamp": {"type": [None, *NOT_SECONDS], "value": BAD_SECONDS}},
    ),
    "position": ({"partition": 0}, {"partition": SEEK["partition"]}),
    "committed": ({"partition": 0}, {"partition": SEEK["partition"]}),
    "close": ({}, {"timeout": BAD_TIMEOUT}),
}

TABLES = {
    "mq": (FACADE, lambda mq: mq),
    "producer": (PRODUCER, lambda mq: mq.producer()),
    "coordinator": (COORDINATOR, lambda mq: mq.coordinator),
    "group": (GROUP, lambda mq: mq.group_actor("g")),
    "partition": (PARTITION, lambda mq: mq.partition_actor("t", 0)),
    "consumer": (CONSUMER, lambda mq: mq.of_k),
    "async_consumer": (CONSUMER, lambda mq: AsyncConsumer(mq.of_k._reader, mq)),
}


def cases():
    for owner, (table, _) in TABLES.items():
        for method, (_, parameters) in table.items():
            for parameter in parameters:
                yield pytest.param(owner, method, parameter, id=f"{owner}.{method}-{parameter}")


@pytest.fixture
def busy(mq):
    """A broker in the middle of its work, and a message that waits for its acknowledgement.

    Partition 0: offset 0 is completed, 1 in flight, 2 not read. Partition 1: 0 failed twice and
    waits, 1 is in flight, 2 not read. Consumer k is as far. Group h has made a dead letter.
    """
    mq.create_topic("t", 2)
    mq.create_topic("other")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    messages = [Message([at], headers={"at": str(at)}) for at in range(6)]
    mq.publish_many("t", messages[:4])
    by_place = {(m.partition, m.offset): m for m in mq.poll("g", "c")}
    mq.create_consumer_group("k", "t")
    mq.of_k = mq.consumer("k")
    mq.of_k.commit({m.partition: 1 for m in mq.of_k.poll(4) if m.partition == 0})
    mq.publish_many("t", messages[4:])
    mq.acknowledge("g", by_place[0, 0])
    for _ in range(2):
        assert mq.acknowledge("g", by_place[1, 0], success=False) is AckResult.RETRYING
    mq.create_consumer_group("h", "t", max_failures=1)
    mq.add_consumer("h", "c")
    [first] = mq.poll("h", "c", 1)
    assert mq.acknowledge("h", first, success=False) is AckResult.DEAD_LETTERED
    return mq, by_place[0, 1]


def everything(mq):
    """All that can be seen of a broker."""
    topics, groups = mq.list_topics(), mq.list_consumer_groups()
    infos = {topic: mq.get_topic_info(topic) for topic in topics}
    logs = [
        mq.partition_actor(topic, number).read(0).get(timeout=WATCHDOG)
        for topic, info in infos.items()
        for number in range(info.num_partitions)
    ]
    return infos, {group: mq.get_group_info(group) for group in groups}, logs


def short(value):
    """A text for a value that may have many digits."""
    text = ascii(value)
    return text if len(text) < 60 else f"{text[:50]}..."


def found_in(value):
    """What an error may name: a value, its type, or what is wrong inside of it."""
    yield repr(value)[:30]
    yield type(value).__name__
    inside = []
    if isinstance(value, Message):
        parts = [value.key, value.headers, value.message_id, value.value]
        inside = [found for found in parts if found not in ("v", None)]
    elif isinstance(value, dict):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | str | bytes):
        inside = [found for found in value if found not in (value, Message("v"))]
    for found in inside:
        yield from found_in(found)


def fault_of(call, kind, value):
    """What is wrong with how a call answers bad input; None if it is as it must be."""
    try:
        answer = call()
    except DMQError as error:
        if not isinstance(error, ValueError):
            return f"{error!r} is no ValueError"
        if kind == "type" and not isinstance(error, TypeError):
            return f"{error!r} is no TypeError"
        if not any(found in str(error) for found in found_in(value)):
            return f"{error!r} does not say what was found"
        return None
    except Exception as error:  # that is the fault
        return f"{error!r} is no DMQError"
    return f"was taken: {answer!r}"


@pytest.mark.parametrize(("owner", "method", "parameter"), list(cases()))
def test_bad_input_raises_a_typed_error_that_names_it_and_changes_nothing(
    busy, owner, method, parameter
):
    mq, message = busy
    table, get_target = TABLES[owner]
    good, parameters = table[method]
    arguments = {name: message if given is ... else given for name, given in good.items()}
    faults = {}
    before = everything(mq)
    for kind, wrong in parameters[parameter].items():
        for value in wrong:
            call = partial(getattr(get_target(mq), method), **{**arguments, parameter: value})
            if owner == "async_consumer":
                call = partial(asyncio.run, call())
            elif owner not in ("mq", "consumer", "producer"):
                call = call().get  # bad input fails the promise, not the call
            fault = fault_of(call, kind, value)
            after = everything(mq)
            if fault is None and after != before:
                fault = "was refused, and yet something has changed"
            before = after
            if fault is not None:
                faults[short(value)] = short(fault)
    assert faults == {}
    works(mq, message)


def works(mq, message):
    """A round through all there is, after whatever went wrong."""
    assert mq.acknowledge("g", message) is AckResult.COMPLETED
    stored = mq.publish("t", Message("new", "key"))
    polled = mq.poll("g", "c")
    assert stored.message_id in {found.message_id for found in polled}
    assert mq.poll("g", "c", timeout=0.001) == []
    mq.commit("g", "c")
    assert mq.get_consumer_lag("g") == {0: 0, 1: 0}
    mq.create_topic("works")
    mq.delete_topic("works")


@pytest.mark.parametrize(
    ("kind", "table"),
    [(MessageQueue, FACADE), (Consumer, CONSUMER), (AsyncConsumer, CONSUMER)],
)
def test_the_table_covers_every_public_method_with_arguments(kind, table):
    public = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        parameters = inspect.signature(method).parameters
        named = {known for known, p in parameters.items() if p.kind is not p.VAR_POSITIONAL}
        if not name.startswith("_") and named != {"self"}:
            public[name] = named - {"self"}
    public.pop("subscriber", None)  # raises when it decorates; see test_workers.py
    assert public == {method: set(bad) for method, (_, bad) in table.items()}


@pytest.mark.parametrize("call", ["pause", "resume", "seek_to_beginning", "seek_to_end"])
def test_bad_partitions_of_a_consumer_are_refused(busy, call):
    mq, message = busy
    before = everything(mq)
    faults = {}
    for kind, wrong in {**SEEK["partition"], "value": [-1]}.items():
        for value in wrong:
            for arguments in ((value,), (0, value)):
                fault = fault_of(partial(getattr(mq.of_k, call), *arguments), kind, value)
                if fault is not None or everything(mq) != before:
                    faults[short(arguments)] = fault
    assert faults == {}
    assert mq.of_k.paused == []
    works(mq, message)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("call_timeout", value) for value in (None, 0, *NOT_SECONDS, *BAD_SECONDS)),
        *(("actor_threads", value) for value in (0, -1, 65, *NOT_INT)),
        *(("clock", value) for value in (7, "clock", b"", [1], True)),
        *(("scheduler", value) for value in (7, "scheduler", b"", [1], True)),
        *(("faults", value) for value in (7, "faults", b"", [1], True)),
    ],
    ids=short,
)
def test_a_broker_with_a_bad_option_is_refused_and_leaves_no_thread(option, value):
    with pytest.raises(DMQError) as refused:
        MessageQueue(**{option: value}).close()
    assert isinstance(refused.value, ValueError)
    assert option in str(refused.value)
    assert any(found in str(refused.value) for found in found_in(value))


FORGERIES = {
    "partition": [-1, 2, HUGE, "0", None, 0.5, [0]],
    "offset": [-1, 99, HUGE, "0", None, 0.5, [0]],
    "generation": [-1, 99, None, "1"],
    "delivery_attempt": [0, 99, None, "1"],
    "group_incarnation": [-1, 99, None, "1"],
}


@pytest.mark.parametrize("success", [True, False], ids=["ack", "nack"])
@pytest.mark.parametrize("through", ["mq", "group"])
@pytest.mark.parametrize("field", FORGERIES)
def test_a_message_that_was_tampered_with_is_refused_or_stale_and_changes_nothing(
    busy, through, success, field
):
    mq, message = busy
    faults = {}
    before = everything(mq)
    for value in FORGERIES[field]:
        forged = msgspec.structs.replace(message, **{field: value})
        try:
            if through == "mq":
                outcome = mq.acknowledge("g", forged, success=success)
            else:
                outcome = mq.group_actor("g").acknowledge(forged, success).get(timeout=WATCHDOG)
        except InvalidArgumentError:
            outcome = AckResult.STALE
        except Exception as error:  # that is the fault
            outcome = error
        after = everything(mq)
        if outcome is not AckResult.STALE or after != before:
            faults[short(value)] = (repr(outcome), after == before)
        before = after
    assert faults == {}
    works(mq, message)


@pytest.mark.parametrize("key", [7, ["k"], "\ud800"], ids=ascii)
def test_a_nack_with_a_key_that_is_none_is_refused_and_counts_nothing(busy, key):
    mq, message = busy
    forged = msgspec.structs.replace(message, key=key)
    before = everything(mq)
    for _ in range(3):
        with pytest.raises(InvalidArgumentError, match="key"):
            mq.acknowledge("g", forged, success=False)
    assert everything(mq) == before
    works(mq, message)


class UnprintableError(Exception):
    """An error that raises when it is asked for its text."""

    def __str__(self):
        raise RuntimeError("no text")


def test_an_error_without_a_text_still_makes_a_nack(busy):
    mq, message = busy
    assert (
        mq.acknowledge("g", message, success=False, error=UnprintableError()) is AckResult.RETRYING
    )


def test_a_poll_may_ask_for_any_number_of_messages(busy):
    mq, _ = busy
    assert len(mq.poll("g", "c", HUGE)) == 3  # two that were not read, and a retry
    assert mq.poll("g", "c", HUGE) == []


@pytest.mark.parametrize("seconds", [1e10, 1e15, 1e300], ids=repr)
def test_a_poll_may_wait_for_longer_than_the_world_stands(mq, seconds):
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    patient = mq.group_actor("g").poll("c", timeout=seconds)
    assert mq.group_actor("g").poll("c", timeout=0.001).get(timeout=WATCHDOG) == []
    mq.publish("t", Message("v"))
    assert [message.value for message in patient.get(timeout=WATCHDOG)] == ["v"]
    mq.publish("t", Message("w"), timeout=seconds)
    assert [message.value for message in mq.poll("g", "c", timeout=seconds)] == ["w"]


def test_retention_and_backoff_may_be_as_long_as_one_likes(mq):
    mq.create_topic("t", retention_seconds=1e300, retention_count=HUGE, retention_bytes=HUGE)
    mq.create_consumer_group(
        "g", "t", retry_backoff=1e300, retry_backoff_max=1e300, max_failures=HUGE
    )
    mq.add_consumer("g", "c")
    mq.publish_many("t", [Message("v", "a"), Message("w", "b")])
    first, second = mq.poll("g", "c")
    assert mq.acknowledge("g", first, success=False) is AckResult.RETRYING
    assert mq.poll("g", "c", timeout=0.001) == []
    assert mq.acknowledge("g", second) is AckResult.COMPLETED
    mq.publish("t", Message("x", "c"))
    assert [message.value for message in mq.poll("g", "c")] == ["x"]


@pytest.mark.parametrize("answer", [None, 7.0, "0", True, -1, 2, HUGE], ids=short)
def test_a_partitioner_that_answers_with_nonsense_fails_its_publisher_only(mq, answer):
    mq.create_topic("t", 2, partitioner=lambda _key, _count: answer)
    for call in (
        partial(mq.publish, "t", Message("v", "key")),
        partial(mq.publish_many, "t", [Message("v"), Message("v", "key")]),
        mq.coordinator.publish("t", Message("v", "key")).get,
    ):
        with pytest.raises(InvalidArgumentError, match="partitioner"):
            call()
    assert mq.get_topic_info("t").published_total == 0
    assert mq.publish("t", Message("v", "key"), partition=1).partition == 1


def test_errors_of_the_callers_own_code_come_back_as_they_are(mq):
    mq.create_topic("t", 2, partitioner=lambda _key, _count: 1 // 0)

    def messages():
        yield Message("v")
        raise LookupError("from the caller's generator")

    for call, error in (
        (partial(mq.publish, "t", Message("v", "key")), ZeroDivisionError),
        (partial(mq.publish_many, "t", messages()), LookupError),
    ):
        with pytest.raises(error):
            call()
    assert mq.get_topic_info("t").published_total == 0
    assert mq.publish("t", Message("v")).offset == 0


class UnprintableValue:
    """A value that raises when an error message wants to show it."""

    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("value", [UnprintableValue(), 10**5_000], ids=["object", "int"])
def test_what_cannot_be_shown_in_a_message_is_refused_with_a_typed_error_all_the_same(busy, value):
    mq, message = busy
    before = everything(mq)
    for call in (
        partial(mq.create_topic, value),
        partial(mq.create_topic, "new", value),
        partial(mq.add_consumer, "g", value),
        partial(mq.seek, "g", 0, value),
        partial(mq.commit, "g", "c", {0: value}),
        partial(mq.publish, "t", Message("v", headers={"a": value})),
        partial(mq.publish, "t", Message("v"), timeout=value),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    assert everything(mq) == before
    works(mq, message)


class WatchedOffsets(Mapping):
    """Offsets that note in which threads their code runs."""

    def __init__(self, offsets):
        self._offsets = offsets
        self.threads = set()

    def __getitem__(self, partition):
        self.threads.add(threading.current_thread())
        return self._offsets[partition]

    def __iter__(self):
        self.threads.add(threading.current_thread())
        return iter(self._offsets)

    def __len__(self):
        return len(self._offsets)


def test_the_code_of_a_callers_own_mapping_runs_in_the_callers_thread(busy):
    mq, _ = busy
    offsets = WatchedOffsets({0: 2})
    assert mq.commit("g", "c", offsets) == {0: 2}
    assert offsets.threads == {threading.current_thread()}


def test_names_are_looked_up_in_the_topic_that_is_meant(mq):
    mq.create_topic("two", 2)
    mq.create_topic("one", 1)
    mq.create_consumer_group("g", "one")
    for call in (
        partial(mq.publish, "one", Message("v"), partition=1),
        partial(mq.partition_actor, "one", 1),
        partial(mq.seek, "g", 1, 0),
    ):
        with pytest.raises(UnknownPartitionError, match=r"\b1\b.*\b0\b"):
            call()
