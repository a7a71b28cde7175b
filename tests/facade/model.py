"""A deliberately dumb broker: the oracle of the state machine.

Single-threaded, one dict entry per offset, linear searches everywhere, written from the design's
text and not from the code. Where the design leaves freedom (which partition a poll begins with),
the model does not predict; it says what would be right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

AHEAD, FLYING, WAITING, SKIPPED, DONE = "ahead", "flying", "waiting", "skipped", "done"


@dataclass
class ModelTopic:
    count: int
    retention_count: int | None
    logs: list[list[tuple[str, str | None]]] = field(default_factory=list)
    turn: int = 0

    def __post_init__(self):
        self.logs = [[] for _ in range(self.count)]

    def base(self, partition):
        if self.retention_count is None:
            return 0
        return max(len(self.logs[partition]) - self.retention_count, 0)

    def publish(self, value, key):
        if key is None:
            partition, self.turn = self.turn, (self.turn + 1) % self.count
        else:
            partition = crc32(key.encode()) % self.count
        self.logs[partition].append((value, key))
        return partition, len(self.logs[partition]) - 1


@dataclass
class Cell:
    """One offset as one group sees it."""

    state: str = AHEAD
    attempt: int = 0
    epoch: int = 0  # as delivered; after a seek the attempts begin at 1 again
    failures: int = 0
    due: float = 0.0
    owner: str = ""
    generation: int = 0


@dataclass
class ModelGroup:
    topic_name: str
    topic: ModelTopic
    delivery: str
    backoff: float
    start: list[int]
    members: list[str] = field(default_factory=list)
    generation: int = 0
    cells: list[dict[int, Cell]] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.cells = [{} for _ in self.start]
        self.committed = list(self.start)

    def owner(self, partition):
        return self.members[partition % len(self.members)] if self.members else None

    def assignments(self):
        return {
            member: [p for p in range(self.topic.count) if self.owner(p) == member]
            for member in self.members
        }

    def cell(self, partition, offset):
        return self.cells[partition].setdefault(offset, Cell())

    def rebalance(self, members):
        before = [self.owner(p) for p in range(self.topic.count)]
        self.members = members
        self.generation += 1
        for partition, owner in enumerate(before):
            if owner is not None and owner != self.owner(partition):
                for offset, cell in self.cells[partition].items():
                    if offset >= self.committed[partition] and cell.state in {
                        FLYING,
                        WAITING,
                        SKIPPED,
                    }:
                        cell.state = AHEAD

    def deliverable(self, partition, now, current):
        """What a poll may hand out of a partition, in the only order allowed."""
        log = self.topic.logs[partition]
        blocked, found = set(), []
        for offset in range(self.topic.base(partition), len(log)):
            if offset < self.start[partition] and offset < min(self.committed[partition], current):
                continue  # before the start of the group
            cell, key = self.cell(partition, offset), log[offset][1]
            if cell.state not in {AHEAD, WAITING}:
                continue
            if cell.state == AHEAD and offset < self.committed[partition]:
                continue
            if cell.due > now:
                blocked.add(key)
            elif key is None or key not in blocked:
                found.append(offset)
        return found

    def deliver(self, consumer, partition, offset):
        cell = self.cell(partition, offset)
        cell.attempt += 1
        cell.owner, cell.generation = consumer, self.generation
        cell.state = FLYING
        if self.delivery == "at_most_once":
            for cells_offset in range(self.committed[partition], offset + 1):
                self.cell(partition, cells_offset).state = DONE
            self.committed[partition] = offset + 1
        return cell.attempt

    def is_current(self, message):
        cell = self.cell(message.partition, message.offset)
        return (cell.state in {FLYING, WAITING} or (cell.state == SKIPPED and cell.owner)) and (
            cell.attempt,
            cell.generation,
            cell.epoch,
        ) == (message.delivery_attempt, message.generation, message.epoch)

    def ack(self, message):
        if self.delivery == "at_most_once":
            return "completed"
        if not self.is_current(message):
            return "stale"
        self.done(message.partition, message.offset)
        return "completed"

    def nack(self, message, now, max_failures=3):
        if self.delivery == "at_most_once":
            return "completed"
        if not self.is_current(message):
            return "stale"
        cell = self.cell(message.partition, message.offset)
        cell.failures += 1
        if cell.failures >= max_failures:
            self.done(message.partition, message.offset)
            return "dead_lettered"
        cell.state = WAITING
        cell.due = now + self.backoff * 2 ** (cell.failures - 1)
        return "retrying"

    def done(self, partition, offset):
        cell = self.cell(partition, offset)
        cell.state, cell.failures, cell.due, cell.owner = DONE, 0, 0.0, ""
        self.advance(partition)

    def advance(self, partition):
        cells = self.cells[partition]
        while (cell := cells.get(self.committed[partition])) and cell.state == DONE:
            self.committed[partition] += 1

    def commit(self, consumer):
        for partition in range(self.topic.count):
            if self.owner(partition) != consumer:
                continue
            for offset, cell in list(self.cells[partition].items()):
                if (cell.state == FLYING and cell.owner == consumer) or cell.state == SKIPPED:
                    self.done(partition, offset)

    def commit_to(self, partition, offset):
        for done in range(self.committed[partition], offset):
            self.done(partition, done)

    def seek(self, partition, target, current):
        cells = self.cells[partition]
        backward = target < current
        for offset in range(len(self.topic.logs[partition])):
            cell = self.cell(partition, offset)
            cell.due = 0.0
            if offset < target:
                if cell.state in {AHEAD, WAITING} and offset >= self.committed[partition]:
                    if cell.state == AHEAD:
                        cell.owner = ""
                    cell.state = SKIPPED
                continue
            if cell.state == WAITING or (backward and cell.state == SKIPPED):
                cell.state = AHEAD
            elif backward and self.delivery != "exactly_once" and cell.state in {FLYING, DONE}:
                if cell.state == DONE:
                    cell.attempt = 0
                cell.state = AHEAD
        assert cells is self.cells[partition]
        self.committed[partition] = min(self.committed[partition], target)
        self.advance(partition)

    def lag(self):
        return {
            p: len(self.topic.logs[p]) - max(self.committed[p], self.topic.base(p))
            for p in range(self.topic.count)
        }
