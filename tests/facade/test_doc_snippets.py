"""Every Python block in the README and the docs runs, and so does every docstring example."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import dmq_actors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "pages").rglob("*.md"))]
MODULES = [name for _, name, _ in pkgutil.walk_packages(dmq_actors.__path__, prefix="dmq_actors.")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = Sybil([PythonCodeBlockParser()], path=os.fspath(ROOT)).parse(page)
    for example in document.examples():
        example.evaluate()


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_right(name):
    public = {name: getattr(dmq_actors, name) for name in dmq_actors.__all__}
    assert doctest.testmod(importlib.import_module(name), extraglobs=public).failed == 0
