"""For every test: hypothesis profiles, and the gate that refuses silent skips in CI."""

from __future__ import annotations

import os
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
