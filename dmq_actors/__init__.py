"""dmq_actors: Kafka's semantics inside one Python process.

Topics with partitions, consumer groups, offsets, three delivery semantics, retries, dead letters,
replay and lag, safe to call from any thread. Every partition and every group is a pykka actor.
"""

from dmq_actors._actors.proxies import CoordinatorProxy, GroupProxy, PartitionProxy
from dmq_actors._clients.send_future import SendFuture
from dmq_actors._core.dead_letters import DeadLetterHeader
from dmq_actors._runtime.promise import Promise
from dmq_actors.async_consumer import AsyncConsumer
from dmq_actors.config import (
    BEGINNING,
    DEAD_LETTER_PREFIX,
    END,
    AckResult,
    Delivery,
    GroupConfig,
    OnOffsetLost,
    RetryOrder,
    StartFrom,
    TopicConfig,
)
from dmq_actors.consumer import Consumer
from dmq_actors.errors import (
    ActorCrashedError,
    BlockingInActorError,
    BrokerClosedError,
    BrokerForkedError,
    BrokerTimeoutError,
    ConcurrentUseError,
    ConsumerClosedError,
    ConsumerExistsError,
    ConsumerExpelledError,
    DMQError,
    GroupExistsError,
    HandlerFailedError,
    InvalidArgumentError,
    InvalidOffsetError,
    InvalidTypeError,
    MessageTooLargeError,
    NotIdleError,
    OffsetLostError,
    ProducerClosedError,
    QueueFullError,
    StaleAssignmentError,
    TopicExistsError,
    UnknownConsumerError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)
from dmq_actors.info import (
    ActorFailure,
    CloseReport,
    GroupInfo,
    GroupPartitionInfo,
    HandlerFailure,
    PartitionInfo,
    TopicInfo,
)
from dmq_actors.message_queue import MessageQueue
from dmq_actors.messages import DeliveredMessage, Headers, Message, StoredMessage
from dmq_actors.producer import Producer
from dmq_actors.workers import WorkerPool

__version__ = "0.1.0"

__all__ = [
    "BEGINNING",
    "DEAD_LETTER_PREFIX",
    "END",
    "AckResult",
    "ActorCrashedError",
    "ActorFailure",
    "AsyncConsumer",
    "BlockingInActorError",
    "BrokerClosedError",
    "BrokerForkedError",
    "BrokerTimeoutError",
    "CloseReport",
    "ConcurrentUseError",
    "Consumer",
    "ConsumerClosedError",
    "ConsumerExistsError",
    "ConsumerExpelledError",
    "CoordinatorProxy",
    "DMQError",
    "DeadLetterHeader",
    "DeliveredMessage",
    "Delivery",
    "GroupConfig",
    "GroupExistsError",
    "GroupInfo",
    "GroupPartitionInfo",
    "GroupProxy",
    "HandlerFailedError",
    "HandlerFailure",
    "Headers",
    "InvalidArgumentError",
    "InvalidOffsetError",
    "InvalidTypeError",
    "Message",
    "MessageQueue",
    "MessageTooLargeError",
    "NotIdleError",
    "OffsetLostError",
    "OnOffsetLost",
    "PartitionInfo",
    "PartitionProxy",
    "Producer",
    "ProducerClosedError",
    "Promise",
    "QueueFullError",
    "RetryOrder",
    "SendFuture",
    "StaleAssignmentError",
    "StartFrom",
    "StoredMessage",
    "TopicConfig",
    "TopicExistsError",
    "TopicInfo",
    "UnknownConsumerError",
    "UnknownGroupError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "WorkerPool",
]
