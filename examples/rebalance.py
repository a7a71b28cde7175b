"""Members come and go: who owns which partition, and what becomes of the work in hand.

* Every join and every leave makes exactly one new generation, and nothing else does.
* The assignor decides who gets what. ``sticky`` moves as few partitions as a fair share allows; the
  other three deal all of them out anew. A moved partition costs: what its owner had in hand is
  delivered again, to somebody else.
* A member too many owns nothing, waits in its poll, and takes over the moment an owner leaves.

Run it with ``python examples/rebalance.py``.
"""

from concurrent.futures import ThreadPoolExecutor

from dmq_actors import AckResult, DeliveredMessage, Message, MessageQueue

TOPIC, PARTITIONS = "jobs", 6
ASSIGNORS = ("modular", "range", "roundrobin", "sticky")
STEPS = (("join", "carol"), ("join", "alice"), ("join", "bob"), ("leave", "alice"))

Assignments = dict[str, list[int]]


def owners(assignments: Assignments) -> dict[int, str]:
    """The same the other way round: who owns a partition."""
    return {partition: member for member, owned in assignments.items() for partition in owned}


def count_moved(before: Assignments, after: Assignments) -> int:
    """How many partitions went from one member to another."""
    had, has = owners(before), owners(after)
    return sum(had[partition] != has[partition] for partition in had)


def change(mq: MessageQueue, group: str, step: str, member: str) -> Assignments:
    """One membership change; the new assignments are the answer to it."""
    if step == "join":
        return mq.add_consumer(group, member)
    return mq.remove_consumer(group, member)


def watch_assignor(mq: MessageQueue, assignor: str) -> tuple[Assignments, int]:
    """Go through the steps; returns the last assignments, and how many partitions moved in all."""
    mq.create_consumer_group(assignor, TOPIC, assignor=assignor)
    assignments: Assignments = {}
    moved_in_all = 0
    print(assignor)
    for number, (step, member) in enumerate(STEPS, start=1):
        before, assignments = assignments, change(mq, assignor, step, member)
        moved = count_moved(before, assignments)
        moved_in_all += moved
        generation = mq.get_group_info(assignor).generation
        assert generation == number
        shares = "  ".join(f"{name} {owned}" for name, owned in assignments.items())
        print(f"  generation {generation}, {member} {step}s: {shares}  ({moved} moved)")
    return assignments, moved_in_all


def compare_assignors(mq: MessageQueue) -> dict[str, int]:
    """The same steps under each assignor; returns how many partitions moved."""
    mq.create_topic(TOPIC, PARTITIONS)
    last, moved = {}, {}
    for assignor in ASSIGNORS:
        last[assignor], moved[assignor] = watch_assignor(mq, assignor)
    assert last == {
        "modular": {"carol": [0, 2, 4], "bob": [1, 3, 5]},
        "range": {"carol": [0, 1, 2], "bob": [3, 4, 5]},
        "roundrobin": {"carol": [1, 3, 5], "bob": [0, 2, 4]},
        "sticky": {"carol": [0, 1, 3], "bob": [2, 4, 5]},
    }
    return moved


def take_over(mq: MessageQueue) -> tuple[list[DeliveredMessage], list[DeliveredMessage]]:
    """The owner leaves with messages in hand; returns what it had, and what its successor got."""
    mq.create_topic("orders", 1)
    mq.create_consumer_group("billing", "orders")
    mq.add_consumer("billing", "owner")
    with_two = mq.add_consumer("billing", "idle")
    mq.publish_many("orders", [Message(number) for number in range(5)])
    in_hand = mq.poll("billing", "owner")
    mq.acknowledge("billing", in_hand[0])

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(mq.poll, "billing", "idle", timeout=10.0)
        with_one = mq.remove_consumer("billing", "owner")
        taken_over = waiting.result()
    assert (with_two, with_one) == ({"owner": [0], "idle": []}, {"idle": [0]})
    return in_hand, taken_over


def main() -> None:
    """Assignors side by side, then a change of owners seen from close by."""
    with MessageQueue() as mq:
        moved = compare_assignors(mq)
        in_hand, taken_over = take_over(mq)
        late = mq.acknowledge("billing", in_hand[1])
        fresh = [mq.acknowledge("billing", message) for message in taken_over]
        lag = mq.get_group_info("billing").lag

    # Of the five the first was completed; the others are delivered to the new owner.
    assert [message.offset for message in taken_over] == [1, 2, 3, 4]
    assert {message.delivery_attempt for message in taken_over} == {2}
    # Two joins and a leave; polling and acknowledging made no generation.
    assert {message.generation for message in taken_over} == {3}
    assert late is AckResult.STALE
    assert set(fresh) == {AckResult.COMPLETED}
    assert lag == 0
    print(f"owner left with {len(in_hand) - 1} in hand; idle got them; owner's late ack: {late}")

    assert moved["sticky"] < moved["modular"]
    print("partitions moved: " + ", ".join(f"{name} {count}" for name, count in moved.items()))


if __name__ == "__main__":
    main()
