"""README and docs name what there is, all of it, and deny nothing that is there."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import _dmq_actors_pytest
import dmq_actors
from dmq_actors import AsyncConsumer, Consumer, MessageQueue, Producer, WorkerPool, testing

ROOT = Path(__file__).parents[2]
API = ROOT / "docs" / "pages" / "api"
CLIENTS = (MessageQueue, Consumer, AsyncConsumer, Producer, WorkerPool)


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def code(markdown):
    """What stands in backticks, beside blocks."""
    return re.findall(
        r"`([^`]+)`", re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    )


def words(markdown):
    """The names in it."""
    return {word for span in code(markdown) for word in re.findall(r"\w+", span)}


def features():
    return text("README.md").split("[start:features]")[1].split("[end:features]")[0]


def public_methods(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


# The feature table: README has it, the front page of the docs includes it


def test_the_feature_table_names_every_public_method_of_the_broker():
    missing = public_methods(MessageQueue) - words(features())
    assert not missing, f"add to the feature table of README.md: {sorted(missing)}"


def test_the_feature_table_names_everything_an_application_is_written_with():
    missing = {kind.__name__ for kind in CLIENTS[1:-1]} - words(features())
    assert not missing, f"add to the feature table of README.md: {sorted(missing)}"


def test_the_feature_table_names_nothing_that_is_not_there():
    known = set(dmq_actors.__all__) | set(testing.__all__) | set(vars(_dmq_actors_pytest))
    known |= set().union(*map(public_methods, CLIENTS))
    named = {span for span in code(features()) if re.fullmatch(r"\w+", span)}
    named |= set(re.findall(r"\bmq\.(\w+)", features()))
    assert named, "the table was not found"
    assert not named - known, f"not in the package: {sorted(named - known)}"


def test_the_front_page_of_the_docs_has_the_same_table():
    assert '--8<-- "README.md:features"' in text("docs/pages/index.md")


# The API reference


def rows():
    """Page and names of each row of the table of the API reference."""
    found = re.findall(
        r"^\| \[[^]]+\]\((\w+\.md)\) \| (.*) \|$", text(API / "index.md"), re.MULTILINE
    )
    return [(page, [span for span in code(names) if span.isidentifier()]) for page, names in found]


def described(page):
    """The names that a page explains itself, and those that its directives describe."""
    names = {span for span in code(text(API / page)) if span.isidentifier()}
    for target, options in re.findall(
        r"^::: ([\w.]+)\n((?:    .*\n)*)", text(API / page), re.MULTILINE
    ):
        _, _, last = target.rpartition(".")
        if last[0].isupper() or not is_module(target):
            names.add(last)
            continue
        members = re.search(r"members: \[(.*)\]", options)
        names |= (
            set(members[1].split(", ")) if members else set(vars(importlib.import_module(target)))
        )
    return names


def is_module(name):
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def test_the_api_reference_names_everything_public():
    listed = [name for _, names in rows() for name in names]
    public = set(dmq_actors.__all__) | set(testing.__all__)
    assert sorted(listed) == sorted(set(listed)), "named twice"
    assert set(listed) == public, f"docs/pages/api/index.md: {sorted(set(listed) ^ public)}"


@pytest.mark.parametrize(("page", "names"), rows(), ids=lambda value: str(value)[:20])
def test_each_page_of_the_api_reference_describes_what_the_table_says(page, names):
    missing = set(names) - described(page)
    assert not missing, f"{page} has no directive for {sorted(missing)}"


# Denials


def denials(place):
    """Each sentence or list item that says what is not there."""
    denied = text(place).split({"README.md": "Not here yet:"}.get(place, "### Known limits"))[1]
    return [
        part
        for part in re.split(r"^- |\.\s", denied, flags=re.MULTILINE)
        if place == "README.md" or re.search(r"not (there|here)", part)
    ]


@pytest.mark.parametrize("place", ["README.md", "CHANGELOG.md"])
def test_what_is_said_not_to_be_there_is_not_there(place):
    there = set(dmq_actors.__all__).union(*map(public_methods, CLIENTS))
    for method in ("create_topic", "create_consumer_group", "workers", "subscriber"):
        there |= set(inspect.signature(getattr(MessageQueue, method)).parameters) - {"topic"}
    for part in denials(place):
        wrong = words(part) & there
        assert not wrong, f"{place} denies {sorted(wrong)}, which is there: {part.strip()!r}"


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/pages/*.md"))]
)
def test_no_page_denies_failure_detection_or_the_clients(page):
    said = re.findall(
        r"(?i)no failure detect\w*|not a task queue|failure detection \|[^|]*\| none|"
        r"not here yet: `(?:Producer|Consumer)`",
        text(page),
    )
    assert not said


# Examples


def test_every_example_is_on_the_page_of_examples():
    there = {path.name for path in (ROOT / "examples").glob("*.py")}
    shown = set(
        re.findall(r'^ *--8<-- "examples/(\w+\.py)"$', text("docs/pages/examples.md"), re.MULTILINE)
    )
    assert shown == there
