"""For every test: hypothesis profiles, which tests are real edges, and the gate against silent
skips in CI."""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path

import hypothesis
import pytest

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")

# CI takes a seeded sample of every property; `make proof` runs the long counts.
hypothesis.settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
hypothesis.settings.register_profile("proof", max_examples=5000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("PROPERTY_PROFILE", "ci"))

_skipped: dict[str, str] = {}


@pytest.fixture
def torch_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a fresh process: tests of the launcher import torch into this one."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


# Edges are tested for real: processes, sockets, namespaces. `make quick` leaves those tests out,
# and only they are tried once more when they fail: a busy machine is no reason for a red run,
# and a pure test that fails sometimes is a bug.
_PURE_ROOMS = ("analysis", "env", "faults", "lint", "view")
_TOUCHES_THE_WORLD = re.compile(
    r"^(?:import|from) (?:subprocess|socket|multiprocessing|pty|threading|torch)\b"
    r"|\bos\.(?:fork|kill)\(|\bimport torch\b",
    re.MULTILINE,
)
_HELPERS = re.compile(r"^from (tests(?:\.\w+)*) import", re.MULTILINE)
_TESTS = Path(__file__).parent


@functools.cache
def is_real(file: Path) -> bool:
    """Whether tests of this file, or their helpers, start processes, open sockets, import torch."""
    if file.relative_to(_TESTS).parts[0] in _PURE_ROOMS:  # their snippets only look like it
        return False
    text = file.read_text()
    if _TOUCHES_THE_WORLD.search(text):
        return True
    names = (name.removeprefix("tests.").replace(".", "/") for name in _HELPERS.findall(text))
    helpers = (_TESTS / f"{name}.py" for name in names)
    return any(is_real(helper) for helper in helpers if helper.exists() and helper != file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_real(item.path):
            item.add_marker(pytest.mark.real)
            item.add_marker(pytest.mark.flaky(reruns=1))


def allowed_skips() -> dict[str, str]:
    """Test id -> reason, one a line: `tests/…::test_name  # reason`."""
    entries = (line.partition("#") for line in ALLOWED_SKIPS.read_text().splitlines())
    return {name.strip(): reason.strip() for name, _, reason in entries if name.strip()}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped[report.nodeid] = str(report.longrepr)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skip hides a missing part: where CI says so, only listed skips may pass."""
    hidden = sorted(set(_skipped) - set(allowed_skips()))
    if os.environ.get("FAIL_ON_SKIPS") and hidden and session.exitstatus == 0:
        print("\nskipped without being on tests/allowed_skips.txt:")
        for name in hidden:
            print(f"  {name}: {_skipped[name]}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
