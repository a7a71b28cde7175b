"""`Burials`: the part of a group actor that brings messages to the dead-letter topic.

Three steps, none of which waits: read the original from its partition, let the coordinator store
the letter, complete the original. It is completed only after the letter is stored; if that fails,
the message stays pending and is tried again. It runs as a part of its group actor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from dmq_actors import events
from dmq_actors._actors.partition import PartitionActor
from dmq_actors._core.batch import Batch
from dmq_actors._core.dead_letters import bury, dead_letter_topic
from dmq_actors._core.partitioners import optional_key_bytes
from dmq_actors._runtime.log import log
from dmq_actors._runtime.promise import Promise
from dmq_actors.config import AckResult
from dmq_actors.errors import ActorCrashedError, DMQError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dmq_actors._actors.poll_service import Resume
    from dmq_actors._core.group_state import GroupState
    from dmq_actors._core.progress import Progress
    from dmq_actors._core.scan import Fetched
    from dmq_actors._runtime.clock import Clock
    from dmq_actors._runtime.ref import BrokerRef
    from dmq_actors.messages import DeliveredMessage


@dataclass(eq=False, slots=True)
class Burial:
    """A message on its way to the dead-letter topic, and who waits to hear of it."""

    message: DeliveredMessage
    promise: Promise[AckResult] = field(default_factory=Promise)


class Burials:
    """The burials of one group that are under way."""

    def __init__(
        self,
        state: GroupState,
        partitions: Sequence[BrokerRef[PartitionActor]],
        store: Callable[[int, Batch], Promise[Any]],
        clock: Clock,
        resume: Resume,
        ended: Callable[[int], None],
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._store = store
        self._clock = clock
        self._resume = resume
        self._ended = ended
        self._under_way: dict[tuple[int, int], Burial] = {}

    def start(self, message: DeliveredMessage) -> Promise[AckResult]:
        """Bury a message; the promise tells DEAD_LETTERED, or RETRYING when that failed."""
        burial = Burial(message)
        self._under_way[message.partition, message.offset] = burial
        self._read_original(burial)
        return burial.promise

    def restart(self) -> None:
        """A message of this actor was lost: begin again whatever may have been in it."""
        for burial in list(self._under_way.values()):
            self._read_original(burial)

    def stop(self, why: Callable[[], DMQError]) -> None:
        """The group ends: tell everybody who waits."""
        for burial in self._under_way.values():
            burial.promise.fail(why())

    def _read_original(self, burial: Burial) -> None:
        offset = burial.message.offset
        fetched = self._partitions[burial.message.partition].call(
            PartitionActor.fetch, [(offset, offset + 1)]
        )
        fetched.when_done(partial(self._resume, self._step, self._original_read, burial))

    def _step(
        self,
        step: Callable[[Burial, Promise[Any]], None],
        burial: Burial,
        promise: Promise[Any],
    ) -> None:
        if not self._is_current(burial):
            return
        try:
            step(burial, promise)
        except Exception as error:  # a fault of ours: the message stays pending, nobody waits
            crashed = ActorCrashedError(f"the burial failed ({error!r}); it will be tried again")
            self._failed(burial, error, crashed)
            raise

    def _original_read(self, burial: Burial, promise: Promise[Fetched]) -> None:
        failure = self._progress(burial).failures.get(burial.message.offset)
        try:
            fetched: Fetched = promise.peek()
        except DMQError as error:
            self._failed(burial, error, AckResult.RETRYING)
            return
        if failure is None:  # completed meanwhile, by a commit of its offset
            self._end(burial, AckResult.COMPLETED)
            return
        # The caller's copy stands in where retention has taken the original meanwhile.
        original = fetched.messages[0] if fetched.messages else burial.message
        letter = bury(original, self._state.group_id, failure)
        batch = Batch([letter], [], [], copied=fetched.holds_copies, named=False)
        stored = self._store(burial.message.partition, batch)
        stored.when_done(partial(self._resume, self._step, self._stored, burial))

    def _stored(self, burial: Burial, promise: Promise[Any]) -> None:
        try:
            promise.peek()
        except DMQError as error:
            self._failed(burial, error, AckResult.RETRYING)
            return
        self._state.dead_lettered_total += 1
        self._log(events.DEAD_LETTER_STORED, burial)
        self._progress(burial).buried(burial.message.offset)
        self._end(burial, AckResult.DEAD_LETTERED)

    def _failed(self, burial: Burial, error: Exception, answer: AckResult | DMQError) -> None:
        self._log(events.DEAD_LETTER_FAILED, burial, cause=str(error))
        message = burial.message
        key = optional_key_bytes(message.key)
        self._progress(burial).burial_failed(message.offset, key, self._clock.monotonic())
        self._end(burial, answer)

    def _end(self, burial: Burial, answer: AckResult | DMQError) -> None:
        self._under_way.pop((burial.message.partition, burial.message.offset), None)
        if isinstance(answer, DMQError):
            burial.promise.fail(answer)
        else:
            burial.promise.resolve(answer)
        self._ended(burial.message.partition)

    def _is_current(self, burial: Burial) -> bool:
        place = (burial.message.partition, burial.message.offset)
        return self._under_way.get(place) is burial

    def _progress(self, burial: Burial) -> Progress:
        return self._state.partitions[burial.message.partition]

    def _log(self, event: str, burial: Burial, **more: Any) -> None:
        failure = self._progress(burial).failures.get(burial.message.offset)
        log.warning(
            event,
            group=self._state.group_id,
            topic=dead_letter_topic(self._state.topic),
            partition=burial.message.partition,
            offset=burial.message.offset,
            failures=failure.count if failure else None,
            error=failure.error if failure else None,
            **more,
        )
