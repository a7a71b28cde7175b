"""The whole round trip in thirty lines; run it with ``python examples/quickstart.py``."""

from dmq_actors import AckResult, Message, MessageQueue

with MessageQueue() as mq:
    mq.create_topic("orders", num_partitions=3)
    mq.create_consumer_group("billing", "orders")
    mq.add_consumer("billing", "worker-1")

    # The same key is the same partition, so anna's orders stay in order.
    mq.publish("orders", Message({"book": 2}, key="anna"))
    mq.publish("orders", Message({"lamp": 1}, key="bob"))
    mq.publish("orders", Message({"pen": 5}, key="anna"))

    messages = mq.poll("billing", "worker-1", max_messages=10, timeout=1.0)
    for message in messages:
        print(message.partition, message.offset, message.key, message.value)

    # Complete one message at a time, or all that was delivered so far.
    result = mq.acknowledge("billing", messages[0])
    lag_after_ack = sum(mq.get_consumer_lag("billing").values())
    mq.commit("billing", "worker-1")
    lag_after_commit = sum(mq.get_consumer_lag("billing").values())

assert [message.value for message in messages if message.key == "anna"] == [{"book": 2}, {"pen": 5}]
assert result is AckResult.COMPLETED
assert (lag_after_ack, lag_after_commit) == (2, 0)
print(f"{len(messages)} orders; lag {lag_after_ack} after one ack, {lag_after_commit} after commit")
