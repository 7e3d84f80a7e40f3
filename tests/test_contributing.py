"""The walk-through in CONTRIBUTING.md works: typed into a copy of the tree, its faults are found,
their tests pass, and the catalogue accepts them. Nothing else is touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.places import ROOT

BLOCK = re.compile(r"^<!-- file: (\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DRILLED = "test_says_what_it_does_and_what_must_become_of_it[debugger-prompt]"
COPIED = ("src", "tests", "tools", "pyproject.toml")


def typed() -> dict[str, str]:
    """File -> its text: all blocks that name it, one below the other."""
    files: dict[str, str] = {}
    for file, text in BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text()):
        files[file] = f"{files[file]}\n\n{text}" if file in files else text
    return files


def test_the_faults_of_the_guide_work_in_a_copy_of_the_tree(tmp_path: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            passed_over = shutil.ignore_patterns("__pycache__", "wrecks", "*.egg-info")
            shutil.copytree(source, target, ignore=passed_over)
        else:
            shutil.copy(source, target)
    files = typed()
    tests = [file for file in files if file.startswith("tests/")]
    assert len(tests) == 2
    for file, text in files.items():
        assert not (tmp_path / file).exists(), "the guide adds files, it changes none"
        (tmp_path / file).write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"),
            *tests,
            "tests/test_catalogue.py",
            f"tests/faults/test_drills.py::{DRILLED}",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert f"{DRILLED} PASSED" in done.stdout
    for file in tests:
        slug = Path(file).stem.removeprefix("test_").replace("_", "-")
        assert f"{file}::test_" in done.stdout
        assert f"test_has_faces_tests_and_sources[{slug}] PASSED" in done.stdout
