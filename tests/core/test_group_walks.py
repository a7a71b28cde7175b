"""The state machine of the group on random walks: more steps in a second than with Hypothesis.

What is wrong in one of a thousand runs is found here. A walk cannot be shrunk; a failing one shows
its steps, to make an example of. Its seed comes from `random`, which pytest-randomly seeds.
"""

from __future__ import annotations

import random

from core_support import FACTOR, every_delivery
from test_group_state_machine import KEYS, GroupMachine

from dmq_actors._core.assignors import ASSIGNORS

WALKS, STEPS = 300, 40


class Walk:
    """One run: a machine, and a die that says what it does next."""

    def __init__(self, seed, delivery):
        self.die = random.Random(seed)
        self.steps: list[tuple[str, dict]] = []
        kind = type("Machine", (GroupMachine,), {"delivery": delivery, "tell": lambda *_: None})
        self.machine = kind()
        self.kinds = {
            "append": lambda: {"partition": self.pick(), "messages": self.messages()},
            "evict": lambda: {"partition": self.pick(), "count": self.die.randint(1, 6)},
            "let_time_pass": lambda: {"seconds": self.die.choice([0.5, 1.0, 2.5, 100.0])},
            "add_member": lambda: {"pick": self.pick()},
            "remove_member": lambda: {"pick": self.pick()},
            "poll": lambda: {"pick": self.pick(), "room": self.room()},
            "poll_and_settle": lambda: {
                "pick": self.pick(),
                "room": self.room(),
                "what": self.fates(),
            },
            "settle": lambda: {"what": self.fates()},
            "begin_poll": lambda: {"pick": self.pick(), "room": self.room()},
            "finish_poll": lambda: {"pick": self.pick()},
            "ack": lambda: {"back": self.recent()},
            "nack": lambda: {"back": self.recent(), "times": self.die.randint(1, 3)},
            "end_burial": lambda: {"pick": self.pick(), "stored": self.die.random() < 0.5},
            "commit": lambda: {"pick": self.pick()},
            "commit_offsets": lambda: {
                "pick": self.pick(),
                "steps": [self.die.randint(0, 4) for _ in range(3)],
            },
            "seek": lambda: {"number": self.pick(), "to": self.die.randint(-2, 20)},
            "give_back": lambda: {"back": self.recent()},
        }
        # Each walk leaves some kinds of steps out, so that others come thick.
        self.weights = {name: self.die.choice([0, 0.3, 1, 2]) for name in self.kinds}
        self.weights["poll"] = 2

    def run(self):
        self.do("begin_with", self.beginning())
        for _ in range(STEPS):
            able = [name for name in self.kinds if self.able(name)]
            name = self.die.choices(able, [self.weights[name] + 1e-9 for name in able])[0]
            self.do(name, self.kinds[name]())
        self.machine.teardown()

    def do(self, name, arguments):
        self.steps.append((name, arguments))
        getattr(self.machine, name)(**arguments)
        self.machine.check()

    def able(self, name):
        machine = self.machine
        needed = {
            "add_member": len(machine.members) < 4,
            "begin_poll": set(machine.members) - set(machine.rounds),
            "finish_poll": machine.rounds,
            "ack": machine.tokens,
            "nack": machine.tokens,
            "settle": machine.tokens,
            "end_burial": machine.burials,
            "give_back": machine.answers,
            **dict.fromkeys(["append", "evict", "let_time_pass", "seek"], True),
        }
        return needed.get(name, machine.members)

    def beginning(self):
        return {
            "partitions": self.die.randint(1, 3),
            "start": self.die.choice([0, 0, 1, 3]),
            "members": self.die.randint(1, 2),
            "topic": self.die.choice(["t", "t", "__dlq_t"]),
            "messages": self.messages(),
            "options": {
                "assignor": self.die.choice(sorted(ASSIGNORS)),
                "max_failures": self.die.randint(1, 3),
                "retry_backoff": self.die.choice([0.0, 1.0]),
                "retry_order": self.die.choice(["key", "none", "partition"]),
                "on_offset_lost": self.die.choice(["earliest", "latest", "error"]),
            },
        }

    def pick(self):
        return self.die.randrange(31)

    def recent(self):
        return min(self.pick(), self.pick())

    def room(self):
        return self.die.choice([100, 3, 2, 1])

    def messages(self):
        names = [None, None, None, "x", "y"]
        count = self.die.randint(1, 6)
        return [(self.die.choice(KEYS), self.die.choice(names)) for _ in range(count)]

    def fates(self):
        return self.die.choices(["ack", "nack", "nack", "leave"], k=self.die.randint(0, 6))


@every_delivery
def test_a_group_does_what_the_design_says_on_random_walks(delivery):
    for _ in range(WALKS * FACTOR):
        seed = random.getrandbits(32)
        walk = Walk(seed, delivery)
        try:
            walk.run()
        except BaseException as error:
            steps = "\n".join(f"    {name} {arguments}" for name, arguments in walk.steps)
            error.add_note(f"Walk({seed}, {delivery!r}):\n{steps}")
            raise
