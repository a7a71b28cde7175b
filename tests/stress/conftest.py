"""Seeds, paces, and the count of rounds for the stress tests."""

from __future__ import annotations

import os
import secrets
import sys
from typing import TYPE_CHECKING

import pytest
from stress.harness import Rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = os.environ.get("DMQ_STRESS_SEED") or str(secrets.randbelow(10**9))
_played: list[Rounds] = []


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Rounds:
    """The rounds of this test."""
    counter = Rounds(request.node.name, SEED)
    _played.append(counter)
    return counter


@pytest.fixture
def hectic() -> Iterator[None]:
    """Let threads take turns 500 times as often as usual: that finds the narrow gaps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many rounds were played, by scenario."""
    if not _played:
        return
    terminalreporter.section(f"stress rounds (DMQ_STRESS_SEED={SEED})")
    by_scenario: dict[str, int] = {}
    for counter in _played:
        scenario = counter.case.partition("[")[0]
        by_scenario[scenario] = by_scenario.get(scenario, 0) + counter.played
    for scenario, played in sorted(by_scenario.items()):
        terminalreporter.write_line(f"{played:5d}  {scenario}")
