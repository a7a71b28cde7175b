"""A group that reads logs, against a model with one status for each offset.

The model (``group_model.py``) is written from the text of the design (sections 5 and 7), not from
the code. It does not predict which messages a poll returns; it says of each whether it may come
now, and of an empty poll whether something should have come.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from core_support import COMPLETED, DEAD_LETTERED, RETRYING, STALE, Reading, Round, examples
from group_model import AHEAD, BEFORE, BURYING, DONE, FLYING, SKIPPED, WAITING, Cell, Part
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dmq_actors import (
    ConsumerExistsError,
    Delivery,
    InvalidOffsetError,
    Message,
    OffsetLostError,
    StaleAssignmentError,
    UnknownConsumerError,
)
from dmq_actors._core.assignors import ASSIGNORS
from dmq_actors._core.handout import stamp

if TYPE_CHECKING:
    from dmq_actors import DeliveredMessage
    from dmq_actors._core.handout import Piece

NAMES = ["a", "b", "c", "d"]
KEYS = [None, "k", b"k", "l"]
LONGEST_WAIT = 64.0

picks = st.integers(0, 30)
rooms = st.sampled_from([100, 3, 2, 1])
new_messages = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([None, None, None, "x", "y"])),
    min_size=1,
    max_size=6,
)
fates = st.lists(st.sampled_from(["ack", "nack", "nack", "leave"]), max_size=6)


class GroupMachine(RuleBasedStateMachine):
    delivery = Delivery.AT_LEAST_ONCE

    @initialize(
        partitions=st.integers(1, 3),
        start=st.integers(0, 3),
        members=st.integers(1, 2),
        topic=st.sampled_from(["t", "__dlq_t"]),
        messages=new_messages,
        options=st.fixed_dictionaries(
            {
                "assignor": st.sampled_from(sorted(ASSIGNORS)),
                "max_failures": st.integers(1, 3),
                "retry_backoff": st.sampled_from([0.0, 1.0]),
                "retry_order": st.sampled_from(["key", "none", "partition"]),
                "on_offset_lost": st.sampled_from(["earliest", "latest", "error"]),
            }
        ),
    )
    def begin_with(self, partitions, start, members, topic, messages, options):
        self.world = Reading(
            partitions,
            members=NAMES[:members],
            topic=topic,
            start=[start] * partitions,
            delivery=self.delivery,
            retry_backoff_max=2.5,
            **options,
        )
        self.group = self.world.group
        self.config = self.group.config
        self.parts = [Part(committed=start) for _ in range(partitions)]
        self.generation = members
        self.members = NAMES[:members]
        self.tokens: list[DeliveredMessage] = []
        self.answers: list[tuple[list[Piece], list[DeliveredMessage]]] = []
        self.burials: list[tuple[int, int]] = []
        self.rounds: dict[str, Round] = {}
        for partition in range(partitions):
            self._store(partition, [(None, None)] * start)
            for cell in self.parts[partition].cells:
                cell.status = BEFORE
            self._store(partition, messages)

    def tell(self, text):
        """Say in a failing example what happened."""
        note(text)

    # The log

    @rule(partition=picks, messages=new_messages)
    def append(self, partition, messages):
        self._store(partition % len(self.parts), messages)

    def _store(self, partition, messages):
        self.world.publish_messages(
            [Message("v", key, message_id=name) for key, name in messages], partition
        )
        for key, name in messages:
            as_bytes = key.encode() if isinstance(key, str) else key
            self.parts[partition].cells.append(Cell(as_bytes, name))

    @rule(partition=picks, count=st.integers(1, 6))
    def evict(self, partition, count):
        number = partition % len(self.parts)
        part = self.parts[number]
        part.base = min(part.base + count, len(part.cells))
        self.world.evict_below(part.base, number)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5, 100.0]))
    def let_time_pass(self, seconds):
        self.world.now += seconds

    # Members

    @precondition(lambda self: len(self.members) < len(NAMES))
    @rule(pick=picks)
    def add_member(self, pick):
        free = [name for name in NAMES if name not in self.members]
        name = free[pick % len(free)]
        self._rebalance(self.group.add_member, name, [*self.members, name])

    @precondition(lambda self: self.members)
    @rule(pick=picks)
    def remove_member(self, pick):
        name = self.members[pick % len(self.members)]
        self.rounds.pop(name, None)
        self._rebalance(
            self.group.remove_member, name, [other for other in self.members if other != name]
        )

    def _rebalance(self, change, name, members):
        before, owners = self.group.assignments(), dict(self.group.owners)
        changed = change(name)
        after = self.group.assignments()
        self.members = members
        self.generation += 1
        assert changed == {
            member for member in {*before, *after} if before.get(member) != after.get(member)
        }
        for number, part in enumerate(self.parts):
            if number in owners and owners[number] != self.group.owners.get(number):
                self._release(number, part)

    def _release(self, number, part):
        for cell in part.cells:
            if cell.status in (FLYING, WAITING, SKIPPED):
                cell.put_back()
            elif cell.status == BURYING:
                cell.end()
        assert self._progress(number).position == self._progress(number).committed

    @precondition(lambda self: self.members)
    @rule(pick=picks)
    def try_what_membership_forbids(self, pick):
        name = self.members[pick % len(self.members)]
        with pytest.raises(ConsumerExistsError):
            self.group.add_member(name)
        with pytest.raises(UnknownConsumerError):
            self.group.remove_member("stranger")
        with pytest.raises(UnknownConsumerError):
            self.group.commit("stranger")
        assert self.group.plan("stranger", 5, self.world.now) == {}

    # Polls

    @precondition(lambda self: self.members)
    @rule(pick=picks, room=rooms)
    def poll(self, pick, room):
        self._poll_one(pick, room)

    @precondition(lambda self: self.members)
    @rule(pick=picks, room=rooms, what=fates)
    def poll_and_settle(self, pick, room, what):
        self._settle(self._poll_one(pick, room), what)

    @precondition(lambda self: self.tokens)
    @rule(what=fates)
    def settle(self, what):
        self._settle(self.tokens[-len(what) :], what)

    def _settle(self, messages, what):
        for message, fate in zip(messages, what, strict=False):
            if fate == "ack":
                self._ack(message)
            elif fate == "nack":
                self._nack(message)

    def _poll_one(self, pick, room):
        name = self.members[pick % len(self.members)]
        self.rounds.pop(name, None)  # a group actor would have answered it before
        return self._poll(name, room)

    def _poll(self, name, room):
        """Poll without waiting, as a group actor does; the messages."""
        for _ in range(30):
            state = self.world.begin(name, room)
            if state is None:
                self._nothing_should_have_come(name)
                return []
            messages, failed = self._finish(name, state)
            if messages or failed:
                return messages
        raise AssertionError("a poll goes round and round without an answer")

    @precondition(lambda self: set(self.members) - set(self.rounds))
    @rule(pick=picks, room=rooms)
    def begin_poll(self, pick, room):
        free = [name for name in self.members if name not in self.rounds]
        name = free[pick % len(free)]
        state = self.world.begin(name, room)
        if state is None:
            self._nothing_should_have_come(name)
        else:
            self.rounds[name] = state

    @precondition(lambda self: self.rounds)
    @rule(pick=picks)
    def finish_poll(self, pick):
        name = list(self.rounds)[pick % len(self.rounds)]
        state = self.rounds.pop(name)
        self._finish(name, state)

    def _finish(self, name, state):
        positions = [progress.position for progress in self.group.partitions]
        duplicates = self.group.duplicates_total
        pieces, answers = self.world.finish(state)
        failed = False
        for number, answer in answers.items():
            base = state.fetched[number].base_offset
            self._notice(number, base)
            if isinstance(answer, OffsetLostError):
                failed = True
                assert self.config.on_offset_lost == "error"
                unread = self.parts[number].cells[positions[number] : base]
                assert any(cell.pending or cell.status == BURYING for cell in unread)
            else:
                self._lose(number, positions[number], base, answer.lost)
                duplicates += answer.duplicates
                self._skip_duplicates(number, answer.duplicates)
        assert self.group.duplicates_total == duplicates
        messages = stamp(pieces, copied=False)
        assert len(messages) <= state.room
        for message in messages:
            self._receive(name, message)
        if messages:
            self.answers.append((pieces, messages))
        return messages, failed

    def _notice(self, number, base):
        """What retention took, and the group has noticed, is done."""
        progress = self._progress(number)
        for offset, cell in enumerate(self.parts[number].cells[:base]):
            noticed = offset in progress.completed or offset < progress.committed
            if (cell.pending or cell.status == BURYING) and noticed:
                cell.complete()

    def _lose(self, number, position, base, lost):
        """Retention took messages before they were read: they count as done."""
        if lost is None:
            return
        start, end = lost
        assert position <= start < base <= self._progress(number).position
        assert self.config.on_offset_lost != "error"
        assert end == base or self.config.on_offset_lost == "latest"
        for cell in self.parts[number].cells[start:end]:
            if cell.pending:
                cell.complete()
        if self.config.on_offset_lost == "latest":
            self._notice(number, end)

    def _skip_duplicates(self, number, count):
        """An exactly-once group skipped messages whose id it had seen."""
        if self.delivery is not Delivery.EXACTLY_ONCE:
            assert count == 0
            return
        progress = self._progress(number)
        for offset, cell in self.parts[number].numbered():
            if cell.pending and offset in progress.completed:
                assert cell.name is not None
                assert any(
                    other.name == cell.name and other is not cell and not other.duplicate
                    for part in self.parts
                    for other in part.cells
                )
                cell.complete()
                cell.duplicate = True
                count -= 1
        assert count == 0

    def _receive(self, name, message):
        number, offset = message.partition, message.offset
        part = self.parts[number]
        cell = part.cells[offset]
        self.tell(f"{name} gets {number}:{offset}, attempt {message.delivery_attempt}")
        assert self.group.owners[number] == name
        assert message.generation == self.generation
        assert cell.pending, f"{cell.status} was delivered"
        assert cell.due <= self.world.now, "delivered before its time"
        overtaken = [o for o in range(part.base, offset) if self._must_be_first(part, o, cell)]
        assert not overtaken, f"{offset} overtook {overtaken}"
        if self.delivery is Delivery.EXACTLY_ONCE and cell.name is not None:
            assert not any(self._twins_delivered(cell)), "a second message of an id was delivered"
        cell.deliveries += 1
        cell.given_back = False
        if self.delivery is Delivery.AT_MOST_ONCE:
            cell.complete()
            self.tokens.append(message)
            return
        if cell.exact:
            assert message.delivery_attempt == cell.deliveries
        cell.end()
        cell.status, cell.token = FLYING, message
        self.tokens.append(message)
        for old in cell.over:
            assert self.group.acknowledge(old) is STALE

    def _must_be_first(self, part, earlier, cell):
        other = part.cells[earlier]
        if not other.pending:
            return False
        if self.config.retry_order == "partition":
            return True
        if other.key is None or other.key != cell.key:
            return False
        if self.config.retry_order == "key":
            return True
        return other.deliveries == 0 and not other.given_back

    def _twins_delivered(self, cell):
        for part in self.parts:
            for offset, other in part.numbered():
                if other.name == cell.name and other is not cell and offset >= part.base:
                    yield other.deliveries > 0

    def _nothing_should_have_come(self, name):
        """An empty poll: nothing may be deliverable, and the next retry must not be missed."""
        now, due = self.world.now, self.group.next_due(name)
        for number in self.group.assignment[name]:
            part = self.parts[number]
            for offset in range(part.base, len(part.cells)):
                cell = part.cells[offset]
                if not cell.pending or self._may_be_held_up(part, offset):
                    continue
                assert cell.due_by > now, f"{number}:{offset} should have come"
                assert due is not None
                assert now < due <= cell.due_by, "nobody would wake for the next retry"

    def _may_be_held_up(self, part, offset):
        cell = part.cells[offset]
        for other in part.cells[:offset]:
            if other.pending and (
                self.config.retry_order == "partition"
                or (
                    self.config.retry_order == "key"
                    and cell.key is not None
                    and other.key == cell.key
                )
            ):
                return other.due_by > self.world.now or other is not cell
        return False

    # Completing

    @precondition(lambda self: self.tokens)
    @rule(back=picks)
    def ack(self, back):
        self._ack(self.tokens[-1 - back % len(self.tokens)])

    def _ack(self, message):
        part = self.parts[message.partition]
        cell = part.cells[message.offset]
        result = self.group.acknowledge(message)
        if self.delivery is Delivery.AT_MOST_ONCE:
            assert result is COMPLETED
        elif cell.token is not message or cell.status == BURYING:
            assert result is STALE
        else:
            assert result is COMPLETED or (cell.loose and result is STALE)
            if result is COMPLETED:
                cell.complete()

    @precondition(lambda self: self.tokens)
    @rule(back=picks, times=st.integers(1, 3))
    def nack(self, back, times):
        message = self.tokens[-1 - back % len(self.tokens)]
        for _ in range(times):
            self._nack(message)

    def _nack(self, message):
        cell = self.parts[message.partition].cells[message.offset]
        result = self.world.nack(message)
        if self.delivery is Delivery.AT_MOST_ONCE:
            assert result is COMPLETED
            return
        if cell.token is not message or cell.status == BURYING:
            assert result is STALE
            return
        if cell.loose and result is STALE:
            return
        cell.loose = False
        cell.failures += 1
        if cell.failures < self.config.max_failures:
            assert result is RETRYING
            backoff = self.config.retry_backoff * 2 ** (cell.failures - 1)
            cell.wait(self.world.now + min(backoff, self.config.retry_backoff_max))
            return
        assert result is DEAD_LETTERED
        if self.group.topic == "t":
            cell.status = BURYING
            self.burials.append((message.partition, message.offset))
        else:
            cell.complete()

    @precondition(lambda self: self.burials)
    @rule(pick=picks, stored=st.booleans())
    def end_burial(self, pick, stored):
        number, offset = place = self.burials[pick % len(self.burials)]
        self.burials = [other for other in self.burials if other != place]
        self._end_burial(number, offset, stored=stored)

    def _end_burial(self, number, offset, *, stored):
        cell = self.parts[number].cells[offset]
        if stored:
            self._progress(number).buried(offset)
            if cell.status == BURYING:
                cell.complete()
            return
        self._progress(number).burial_failed(offset, cell.key, self.world.now)
        if cell.status == BURYING:
            cell.wait(self.world.now, self.world.now + LONGEST_WAIT)

    @precondition(lambda self: self.members)
    @rule(pick=picks)
    def commit(self, pick):
        self._commit(self.members[pick % len(self.members)])

    def _commit(self, name):
        committed = self.group.commit(name)
        owned = self.group.assignment[name]
        assert committed == {number: self._progress(number).committed for number in owned}
        for number in owned:
            for cell in self.parts[number].cells:
                if cell.status in (FLYING, SKIPPED):
                    cell.complete()

    @precondition(lambda self: self.members)
    @rule(pick=picks, steps=st.lists(st.integers(0, 4), min_size=3, max_size=3))
    def commit_offsets(self, pick, steps):
        name = self.members[pick % len(self.members)]
        offsets = {}
        for number in self.group.assignment[name]:
            progress = self._progress(number)
            offsets[number] = min(progress.committed + steps[number], progress.position)
        committed = self.group.commit(name, offsets)
        for number, offset in offsets.items():
            part = self.parts[number]
            assert offset <= committed[number] == self._progress(number).committed
            for cell in part.cells[part.committed : offset]:
                cell.complete()

    @precondition(lambda self: self.members)
    @rule(pick=picks, number=picks, below=st.booleans())
    def try_to_commit_what_is_out_of_range(self, pick, number, below):
        name = self.members[pick % len(self.members)]
        number %= len(self.parts)
        progress = self._progress(number)
        offset = progress.committed - 1 if below else progress.position + 1
        before = [(p.committed, p.position) for p in self.group.partitions]
        owned = {p: self._progress(p).position for p in self.group.assignment[name]}
        error = InvalidOffsetError if number in owned else StaleAssignmentError
        with pytest.raises(error):
            self.group.commit(name, {**owned, number: offset})
        assert [(p.committed, p.position) for p in self.group.partitions] == before

    # Moves

    @rule(number=picks, to=st.integers(0, 20) | st.sampled_from([-1, -2]))
    def seek(self, number, to):
        number %= len(self.parts)
        part = self.parts[number]
        base, end = part.base, len(part.cells)
        self._seek(number, {-1: base, -2: end}.get(to, base + to % (end - base + 1)))

    def _seek(self, number, target):
        part, progress = self.parts[number], self._progress(number)
        before, committed = progress.position, progress.committed
        self.world.seek(target, number)
        self._notice(number, part.base)
        for offset, cell in part.numbered():
            if cell.pending:
                cell.due = 0.0  # waiting retries are dropped from the schedule
                if cell.status == WAITING:
                    cell.due_by = 0.0
                cell.status = SKIPPED if offset < target else AHEAD
                cell.loose = True
            elif target < before and offset >= target:
                cell.loose = cell.status == BURYING
                self._rewind(cell)
        part.committed = min(committed, target)
        # An exactly-once group may see at once that what follows is done already.
        assert progress.position == max(target, progress.committed)

    def _rewind(self, cell):
        if cell.status in (SKIPPED, BEFORE):
            cell.put_back()
        elif self.delivery is not Delivery.EXACTLY_ONCE:
            cell.exact = False
            if cell.status == BURYING:
                cell.end()
            elif cell.status in (FLYING, DONE):
                cell.put_back()

    @precondition(lambda self: self.answers)
    @rule(back=picks)
    def give_back(self, back):
        pieces, messages = self.answers.pop(-1 - back % len(self.answers))
        self.group.give_back(pieces)
        gone = {id(message) for message in messages}
        self.tokens = [message for message in self.tokens if id(message) not in gone]
        for message in messages:
            cell = self.parts[message.partition].cells[message.offset]
            if self.delivery is Delivery.AT_MOST_ONCE:
                # It may be lost, so giving back is a favour that is not always possible.
                if message.offset >= self._progress(message.partition).position:
                    if cell.status == DONE:
                        cell.deliveries -= 1
                    cell.status = AHEAD
                    part = self.parts[message.partition]
                    part.committed = min(part.committed, message.offset)
            elif cell.token is message and cell.status == FLYING:
                cell.status, cell.token, cell.given_back = AHEAD, None, True
                cell.deliveries -= 1
                cell.due = cell.due_by = 0.0

    # What is always true

    @invariant()
    def check(self):
        self._committed_is_the_end_of_what_is_done_without_a_gap()
        self._what_is_in_flight_is_with_the_owner_of_its_partition_and_nobody_else()
        self._each_partition_has_one_owner_or_none_has_any()
        self._one_change_of_the_members_is_one_generation()
        self._failures_are_counted_and_forgotten_with_their_message()

    def _committed_is_the_end_of_what_is_done_without_a_gap(self):
        for number, part in enumerate(self.parts):
            progress = self._progress(number)
            assert progress.committed <= progress.position <= len(part.cells)
            least = self._done_to(part, part.committed, {DONE})
            gone = {DONE, AHEAD, WAITING, BURYING, SKIPPED}  # what retention took may count as done
            most = self._done_to(part, part.committed, {DONE}, gone)
            assert least <= progress.committed <= most
            for cell in part.cells[part.committed : progress.committed]:
                cell.complete()
            part.committed = progress.committed

    def _done_to(self, part, offset, done, done_if_evicted=frozenset()):
        if self.delivery is Delivery.AT_MOST_ONCE:
            done = {*done, SKIPPED} if done_if_evicted else done
        while offset < len(part.cells) and (
            part.cells[offset].status in done
            or (offset < part.base and part.cells[offset].status in done_if_evicted)
        ):
            offset += 1
        return offset

    def _what_is_in_flight_is_with_the_owner_of_its_partition_and_nobody_else(self):
        for number, part in enumerate(self.parts):
            progress, owner = self._progress(number), self.group.owners.get(number)
            assert {handout.owner for _, _, handout in progress.in_flight} <= {owner}
            for offset, cell in part.numbered():
                flies = offset in progress.in_flight
                assert not (flies and offset in progress.completed)
                if cell.status == FLYING:
                    assert flies
                elif cell.token is None:
                    assert not flies
                assert (offset in progress.burying) == (cell.status == BURYING)

    def _each_partition_has_one_owner_or_none_has_any(self):
        assignment = self.group.assignment
        assert list(assignment) == self.members
        dealt = sorted(number for owned in assignment.values() for number in owned)
        assert dealt == (list(range(len(self.parts))) if self.members else [])
        owners = {number: name for name, owned in assignment.items() for number in owned}
        assert self.group.owners == owners

    def _one_change_of_the_members_is_one_generation(self):
        assert self.group.generation == self.generation

    def _failures_are_counted_and_forgotten_with_their_message(self):
        for number, part in enumerate(self.parts):
            counted = {o: f.count for o, f in self._progress(number).failures.items()}
            assert counted == {o: cell.failures for o, cell in part.numbered() if cell.failures}

    def teardown(self):
        """Whatever happened, in the end every retained message was delivered, and the lag is 0."""
        if sys.exc_info()[0] is not None:
            return  # a step has failed, or Hypothesis gave the example up
        self._drain()
        assert not self._poll_all()
        self.check()
        for number, part in enumerate(self.parts):
            assert all(cell.status in (DONE, BEFORE) for cell in part.cells[part.base :])
            assert self.world.lag(number) == 0
        if self.delivery is Delivery.EXACTLY_ONCE:
            self._each_id_was_delivered_once()

    def _drain(self):
        self.rounds.clear()
        for number, offset in dict.fromkeys(self.burials):
            self._end_burial(number, offset, stored=True)
        self.world.now += 1000.0
        if not self.members:
            self._rebalance(self.group.add_member, "z", ["z"])
        while self._poll_all():
            self.check()
        for cell in (cell for part in self.parts for cell in part.cells):
            if cell.status == FLYING:
                self._ack(cell.token)
        for name in self.members:
            self._commit(name)

    def _poll_all(self):
        found = False
        for name in self.members:
            for number in self.group.assignment[name]:
                if self.config.on_offset_lost == "error":
                    base = self.parts[number].base
                    if self._progress(number).position < base:
                        self._seek(number, base)
            for message in self._poll(name, 3):
                found = True
                self._ack(message)
        return found

    def _each_id_was_delivered_once(self):
        for name in ("x", "y"):
            cells = [
                (cell, offset < part.base)
                for part in self.parts
                for offset, cell in part.numbered()
                if cell.name == name
            ]
            if cells and not any(evicted for _, evicted in cells):
                delivered = [cell for cell, _ in cells if cell.deliveries]
                assert len(delivered) <= 1
                assert delivered or any(not cell.duplicate for cell, _ in cells)

    def _progress(self, number):
        return self.group.partitions[number]


@pytest.mark.timeout(600)  # to find the shortest of a failing sequence takes a while
@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_group_does_what_the_design_says(delivery):
    machine = type("Machine", (GroupMachine,), {"delivery": delivery})
    run_state_machine_as_test(machine, settings=examples(60, steps=40))
