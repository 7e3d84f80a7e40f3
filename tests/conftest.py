"""For every test: hypothesis profiles, which tests are real edges, and the gate against silent
skips in CI."""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadGroupScheduling

from tests.drill.lab.fixture import lab  # noqa: F401 (a fixture for all tests)

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
_IMPORTS = re.compile(r"\A.*?(?=^(?:def|class|@|[A-Za-z_]+ ?[:=(]))", re.MULTILINE | re.DOTALL)
_WORLD = re.compile(
    r"^(?:import|from) (?:asyncio|subprocess|socket|multiprocessing|pty|threading|torch)\b",
    re.MULTILINE,
)
_HELPERS = re.compile(r"^from ((?:tests|tools)(?:\.\w+)*) import (.*)$", re.MULTILINE)
_ROOT = Path(__file__).parent.parent


@functools.cache
def is_real(file: Path) -> bool:
    """Whether this file of tests, or a helper of it, imports what starts processes or threads,
    opens sockets, or torch. Only the head is read: snippets below it merely look like it."""
    head = _IMPORTS.match(file.read_text())
    imports = head.group() if head else ""
    if _WORLD.search(imports):
        return True
    names = [
        path
        for module, imported in _HELPERS.findall(imports)
        for path in (module, *(f"{module}.{name.strip()}" for name in imported.split(",")))
    ]
    helpers = (_ROOT / f"{name.replace('.', '/')}.py" for name in names)
    return any(is_real(helper) for helper in helpers if helper.exists() and helper != file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_real(item.path) or item.get_closest_marker("lab"):
            item.add_marker(pytest.mark.real)
            item.add_marker(pytest.mark.flaky(reruns=1))


class GroupedByFile(LoadGroupScheduling):  # type: ignore[misc]
    """Files with an `xdist_group` go to one worker, which starts their ranks once.

    xdist 3.8 marks groups in a private field that pytest 9.2 no longer reads: without this, every
    worker started them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0]) or nodeid


@functools.cache
def _group(file: str) -> str:
    found = re.search(r'xdist_group\("([^"]+)"\)', (_ROOT / file).read_text())
    return found[1] if found else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupedByFile | None:
    return GroupedByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


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
