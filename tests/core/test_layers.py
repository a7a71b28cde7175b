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
FACADE = [
    "message_queue",
    "redrive",
    "testing",
    "consumer",
    "async_consumer",
    "producer",
    "workers",
]
FACADE += [
    f"testing.{name}" for name in ("faults", "manual_clock", "pytest_plugin", "seeded_scheduler")
]


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


def test_the_modules_of_the_package_are_found():
    assert f"{NAME}._core.progress" in modules()
    assert NAME in modules()
    assert len(within("_core")) >= 15
    assert len(within("_actors")) >= 10


@pytest.mark.parametrize("module", within("_core"))
def test_the_core_reaches_no_thread_clock_actor_or_log(module):
    bad = {found: way for found, way in reached(module).items() if top(found) in IMPURE}
    assert not bad


@pytest.mark.parametrize("module", within("_core"))
def test_the_core_never_imports_the_actors_or_the_facade_not_even_for_types(module):
    upper = {NAME, *within("_actors"), *(f"{NAME}.{name}" for name in FACADE)}
    assert not imports(module, typing=True) & upper
    assert not set(reached(module)) & upper


@pytest.mark.parametrize("module", within("_core"))
def test_the_core_knows_only_the_vocabulary_and_itself(module):
    ours = {found for found in imports(module, typing=True) if top(found) == NAME}
    assert ours <= {*within("_core"), *(f"{NAME}.{name}" for name in VOCABULARY)}


@pytest.mark.parametrize("name", VOCABULARY)
def test_the_vocabulary_stands_on_nothing_of_the_machinery(name):
    found = {module for module in reached(f"{NAME}.{name}") if top(module) == NAME}
    assert found <= {f"{NAME}.{other}" for other in VOCABULARY}


@pytest.mark.parametrize("module", within("_actors"))
def test_the_actors_never_import_the_facade(module):
    facade = {NAME, *(f"{NAME}.{name}" for name in FACADE)}
    assert not imports(module, typing=True) & facade
    assert not set(reached(module)) & facade


@pytest.mark.parametrize("module", [name for name in modules() if name not in within("_actors")])
def test_pykka_and_structlog_are_imported_by_the_actors_only(module):
    assert not {top(found) for found in imports(module, typing=True)} & {"pykka", "structlog"}


@pytest.mark.parametrize("module", [*within("_core"), *within("_actors")])
def test_no_module_of_the_machinery_imports_itself_in_a_circle(module):
    assert module not in {
        found for other in imports(module) if other in modules() for found in reached(other)
    }


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
