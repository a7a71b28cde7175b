"""For tests of programs that use the broker: time, order and faults as inputs.

The pytest fixtures `message_queue`, `message_queue_factory` and `manual_clock` come with the
package; no import is needed for them.
"""

from dmq_actors.testing.faults import FaultRule, Faults, expire_member, force_rebalance
from dmq_actors.testing.manual_clock import ManualClock
from dmq_actors.testing.seeded_scheduler import SeededScheduler

__all__ = [
    "FaultRule",
    "Faults",
    "ManualClock",
    "SeededScheduler",
    "expire_member",
    "force_rebalance",
]
