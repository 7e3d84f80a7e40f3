"""A whole lint: launch scripts and scripts together, in order, on one processor or on several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.analysis.source.source import LintingMachine
from holdfast.errors import ConfigError
from holdfast.lint import session as session_module
from holdfast.lint import walk
from holdfast.lint.config import LintConfig
from holdfast.lint.session import LintSession
from holdfast.lint.tally import LintReport

WRONG = "import torch.distributed as dist\ndist.all_reduce(x, timeout=t)\n"
CHOSEN = ("timeout-keyword",)


def lint(folder: Path, *select: str, wanted: LintConfig | None = None) -> LintReport:
    session = LintSession(select, wanted or LintConfig(), LintingMachine(torch="2.13.0"))
    session.files(list(walk.files([str(folder)], lambda _: False)), lambda _: None)
    return session.report()


def places(report: LintReport) -> list[tuple[str, int]]:
    found = [one.finding.place for one in report.findings]
    return [(os.path.basename(place.file), place.line) for place in found if place]


def test_in_the_order_of_the_files_whatever_their_kind(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text(WRONG)
    (tmp_path / "a.md").write_text(f"```python\n{WRONG}```\n")
    (tmp_path / "tool").write_text(f"#!/usr/bin/env python3\n{WRONG}")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "c.py").write_bytes(b"\0")
    report = lint(tmp_path, *CHOSEN)
    assert places(report) == [("a.md", 3), ("b.py", 2), ("broken.py", 1), ("tool", 3)]
    assert [os.path.basename(path) for path, _ in report.read] == ["a.md", "b.py", "tool"]
    assert [os.path.basename(unread.path) for unread in report.unread] == ["c.py"]
    assert (report.looked_at, report.refused) == (3, 1)


def test_several_processors_say_the_same_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.py").write_text(WRONG if number % 3 else "x = 1\n")
    (tmp_path / "30.py").write_text("x = 1  # holdfast: ignore[nobody]\n")
    alone = lint(tmp_path, *CHOSEN)
    monkeypatch.setattr(session_module, "WORTH_SHARING", 2)
    monkeypatch.setattr(session_module, "SHARE", 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert lint(tmp_path, *CHOSEN) == alone
    assert len(alone.findings) == 20
    assert len(alone.remarks) == 1


def test_a_script_is_judged_with_the_launch_that_starts_it(tmp_path: Path) -> None:
    """Restarted by torchrun, and never loads: seen only from both files together."""
    script = "from transformers import Trainer\ntrainer = Trainer(model)\ntrainer.train()\n"
    (tmp_path / "train.py").write_text(script)
    assert places(lint(tmp_path, "restart-from-zero")) == []
    (tmp_path / "launch.sh").write_text("torchrun --max-restarts 3 train.py\n")
    assert [name for name, _ in places(lint(tmp_path, "restart-from-zero"))] == ["train.py"]


def test_a_file_may_be_spared(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(WRONG)
    (tmp_path / "b.py").write_text("def f(:\n")
    wanted = LintConfig(
        file=str(tmp_path / "pyproject.toml"),
        per_file_ignores={"a.py": CHOSEN, "b.*": ("script-broken",)},
    )
    report = lint(tmp_path, wanted=wanted)
    assert report.findings == []
    assert report.refused == 1


def test_an_unknown_name_is_reported_before_any_file_is_read() -> None:
    with pytest.raises(ConfigError, match="no fault is called 'nobody'"):
        LintSession((), LintConfig(per_file_ignores={"*.py": ("nobody",)}), LintingMachine())


def test_a_script_that_is_too_deep_for_a_check_says_so(tmp_path: Path) -> None:
    branches = "".join(f"elif rank == {number}:\n    pass\n" for number in range(1, 1500))
    (tmp_path / "a.py").write_text(
        "import torch.distributed as dist\nrank = dist.get_rank()\n"
        f"if rank == 0:\n    dist.barrier()\n{branches}"
    )
    (one,) = lint(tmp_path, "rank-conditional-code").findings
    assert one.finding.status.value == "skipped"
    assert "nested too deeply" in one.finding.reason
