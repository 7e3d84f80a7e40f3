"""The example on docs/rules.md does what the page says."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from holdfast.analysis.rules.tracker import RuleHit, RuleTracker
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import RuleChoice, gather
from holdfast.system import rule_files
from holdfast.system.rule_files import LoadedRules
from holdfast.view import run_screen
from tests.places import ROOT

PAGE = (ROOT / "docs" / "rules.md").read_text()


@pytest.fixture
def written(tmp_path: Path) -> LoadedRules:
    (example,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(example)
    return rule_files.load(None, str(tmp_path))


def test_the_notice_is_the_one_shown(written: LoadedRules) -> None:
    tracker = RuleTracker(written.rules)
    tracker.begin(0.0)
    for count, value in ((1, 1006.0), (2, 1005.0)):
        tracker.saw(
            RuleHit(
                rule="loss-too-high", rank=0, at=1.0, value=value, exceeded="above 100",
                line=f"step 6 loss={value:g}", count=count,
            )
        )  # fmt: skip
    (notice,) = tracker.notices(3.0, [0], until=3.0)
    shown = [f"holdfast> {line}" for line in run_screen.own_rule(notice, last=False)]
    assert "\n".join(shown) in PAGE


def test_explain_finds_what_the_rules_are_about(written: LoadedRules) -> None:
    log = b"step 1 loss=5e3\naten::x is falling back to CPU\n"
    found = diagnose(
        gather(["-"], stdin=io.BytesIO(log), rules=RuleChoice(written.rules)), faults=[]
    )
    assert [(one.rule, one.severity) for one in found.rules] == [
        ("loss-too-high", "error"), ("cpu-fallback", "note")
    ]  # fmt: skip
    assert [f"{one.slug}[{one.code}]" for one in found.diagnoses] == ["loss-too-high[OWN]"]
