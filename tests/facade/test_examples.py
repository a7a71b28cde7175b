"""Every example runs alone, from anywhere, without a warning, and ends with a result."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.timeout(90)  # the subprocess has a shorter bound of its own
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_alone_and_prints_its_result(example, tmp_path):
    command = [str(example)]
    if example.stem.startswith("test_"):  # as in a project of its own: without our settings
        shutil.copy(example, tmp_path)
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", example.name]
    done = subprocess.run(  # the files of this repository
        [sys.executable, "-W", "error", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "random", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1:] not in ([], [""]), "it ended without a result"
