"""The layers of the package, as its imports show them.

Imports are read from the source, so that one inside a function counts as well. Those under
``if TYPE_CHECKING:`` exist for type checkers only and bind nobody at run time.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import dmq_actors

PACKAGE = Path(dmq_actors.__file__).parent
NAME = "dmq_actors"
IMPURE = {"pykka", "threading", "time", "structlog", "asyncio", "queue"}
IMPURE |= {"_thread", "concurrent", "multiprocessing", "selectors", "sched", "signal", "socket"}
IMPURE |= {"subprocess", "logging", "random", "uuid_utils", "os", "io"}
VOCABULARY = ["messages", "errors", "config", "info", "events"]
ROOMS = ["_core", "_runtime", "_actors", "_clients"]
"""From the bottom up; what users import stands above them all."""


@cache
def modules():
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module, *, typing=False):
    """The modules that a module imports; with `typing`, those for type checkers too."""
    path = modules()[module]
    return imports_of(
        ast.parse(path.read_text()), module, package=path.name == "__init__.py", typing=typing
    )


def imports_of(tree, module, *, package, typing):
    found = set()
    for node in _at_run_time(tree) if not typing else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                above = parts[: len(parts) - node.level + package]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                # ``from datetime import time`` names a class in `datetime`, not the module `time`.
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in modules() else base)
    return found


def _at_run_time(tree):
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        yield node
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            nodes += node.orelse
        else:
            nodes += ast.iter_child_nodes(node)


def _is_type_checking(test):
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


@cache
def reached(module):
    """What a module imports at run time, through modules of the project too, with the way there."""
    ways = {module: [module]}
    waiting = [module]
    while waiting:
        at = waiting.pop()
        for found in imports(at):
            if found not in ways:
                ways[found] = [*ways[at], found]
                if found in modules():
                    waiting.append(found)
    del ways[module]
    return ways


def within(layer):
    return [name for name in modules() if f"{name}.".startswith(f"{NAME}.{layer}.")]


def top(module):
    return module.split(".")[0]


def room_of(module):
    """The height of the room that a module stands in: vocabulary, rooms, product."""
    parts = module.split(".")
    if len(parts) == 2 and parts[1] in VOCABULARY:
        return 0
    return 1 + ROOMS.index(parts[1]) if parts[1:] and parts[1] in ROOMS else 1 + len(ROOMS)


def ours(module, *, typing):
    return {found for found in imports(module, typing=typing) if found in modules()} - {module}


def test_the_modules_of_the_package_are_found():
    assert f"{NAME}._core.progress" in modules()
    assert NAME in modules()
    assert {len(within(room)) >= 10 for room in ROOMS} == {True}


@pytest.mark.parametrize("module", within("_core"))
def test_the_core_reaches_no_thread_clock_actor_or_log(module):
    bad = {found: way for found, way in reached(module).items() if top(found) in IMPURE}
    assert not bad


@pytest.mark.parametrize("module", modules())
def test_imports_run_only_downward_not_even_for_types_up(module):
    upward = {f for f in ours(module, typing=True) if room_of(f) > room_of(module)}
    assert not upward


@pytest.mark.parametrize("module", within("_core"))
def test_the_core_knows_only_the_vocabulary_and_itself(module):
    assert {room_of(found) for found in ours(module, typing=True)} <= {0, 1}


@pytest.mark.parametrize("module", within("_runtime"))
def test_the_runtime_knows_no_topic_group_or_offset(module):
    others = {room_of(found) for found in ours(module, typing=True)} - {0, 2}
    assert not others
    assert not {f"{NAME}.messages", f"{NAME}.config"} & ours(module, typing=True)


@pytest.mark.parametrize("name", VOCABULARY)
def test_the_vocabulary_stands_on_nothing_of_the_machinery(name):
    assert {room_of(found) for found in reached(f"{NAME}.{name}") if top(found) == NAME} <= {0}


@pytest.mark.parametrize("module", [name for name in modules() if name not in within("_runtime")])
def test_pykka_and_structlog_are_the_runtimes(module):
    found = {top(found) for found in imports(module, typing=True)} & {"pykka", "structlog"}
    by_type = {f"{NAME}._actors.proxies", f"{NAME}.testing.seeded_scheduler"}
    assert found <= ({"pykka"} if module in by_type else set())


def test_no_file_imports_itself_in_a_circle_not_even_for_types():
    graph = {module: ours(module, typing=True) for module in modules()}
    while leaves := {module for module, below in graph.items() if not below}:
        graph = {module: below - leaves for module, below in graph.items() if module not in leaves}
    assert not graph, "each of these imports another of these"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time", {"time"}),
        ("import time as clock, queue", {"time", "queue"}),
        ("from time import monotonic", {"time"}),
        ("from datetime import time", {"datetime"}),
        ("def f():\n    import threading", {"threading"}),
        ("if TYPE_CHECKING:\n    import pykka\nelse:\n    import queue", {"queue"}),
        ("import typing\nif typing.TYPE_CHECKING:\n    import pykka", {"typing"}),
        ("from dmq_actors import events", {"dmq_actors.events"}),
        ("from dmq_actors import Message", {"dmq_actors"}),
        ("from dmq_actors.errors import DMQError", {"dmq_actors.errors"}),
        ("from . import scan", {"dmq_actors._core.scan"}),
        ("from .scan import plan", {"dmq_actors._core.scan"}),
        ("from .. import errors", {"dmq_actors.errors"}),
        ("from ..errors import DMQError", {"dmq_actors.errors"}),
    ],
)
def test_imports_are_read_as_python_reads_them(source, expected):
    module = f"{NAME}._core.progress"
    assert imports_of(ast.parse(source), module, package=False, typing=False) == expected
