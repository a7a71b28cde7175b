from dmq_actors import Message


def test_a_published_message_is_polled_once_and_committed(mq):
    mq.create_topic("t")
    mq.create_consumer_group("g", "t")
    mq.add_consumer("g", "c")
    stored = mq.publish("t", Message("hello", key="k"))
    [message] = mq.poll("g", "c")
    assert (message.value, message.key, message.offset) == ("hello", "k", stored.offset)
    assert mq.poll("g", "c") == []
    assert mq.commit("g", "c") == {0: 1}
    assert mq.get_consumer_lag("g") == {0: 0}
