"""What real launchers left of a job that was broken on purpose (see tools/make_wrecks.py).

Explained right when whole, and with pieces missing right or not sure: never surely wrong.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather
from holdfast.findings import Diagnosis, Grade
from tests.places import WRECKS

NAMES = sorted(path.parent.name for path in WRECKS.glob("*/truth.json"))

NAMELESS = {
    # Gloo aborts the one that received; who sent is in no line.
    *("torchrun-size", "tee-size", "deepspeed-size"),
    # DeepSpeed ended the others before they said anything, and tells no rank itself.
    *("deepspeed-kill", "deepspeed-segfault"),
}
"""where nothing tells the rank"""


def truth_of(name: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((WRECKS / name / "truth.json").read_text())
    return truth


@functools.cache
def pieces_of(name: str) -> dict[str, bytes]:
    """Path within the wreck -> content."""
    folder = WRECKS / name
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != "truth.json"
    }


def explained(pieces: dict[str, bytes]) -> tuple[Diagnosis, ...]:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in pieces.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        report = diagnose(gather([folder]), (entry.fault for entry in catalogue.entries()))
    assert not [remark for remark in report.remarks if "a bug in holdfast" in remark]
    return report.diagnoses


def culprit_of(answer: Diagnosis) -> str | None:
    known = answer.culprit is not None and answer.culprit.rank is not None
    return f"rank {answer.culprit.rank}" if known and answer.culprit else None


def test_there_is_wreckage_of_every_launcher() -> None:
    launchers = {name.partition("-")[0] for name in NAMES}
    assert launchers == {"torchrun", "tee", "accelerate", "deepspeed"}


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_wreck_is_explained_right(name: str) -> None:
    truth = truth_of(name)
    answers = explained(pieces_of(name))
    if truth["cause"] == "healthy":
        assert answers == ()
        return
    assert answers[0].slug in {truth["cause"], *truth["accept"]}
    named = culprit_of(answers[0])
    assert named == truth["culprit"] or (name in NAMELESS and named is None)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_with_pieces_missing_it_is_right_or_not_sure(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    truth = truth_of(name)
    pieces = pieces_of(name)
    kept = data.draw(st.sets(st.sampled_from(sorted(pieces)), min_size=1))
    cut = data.draw(st.sets(st.sampled_from(sorted(kept))))
    from_the_top = data.draw(st.booleans())
    answers = explained({one: _half(pieces[one], one in cut, from_the_top) for one in kept})
    if not answers or answers[0].grade is not Grade.CERTAIN:
        return
    assert answers[0].slug in {truth["cause"], *truth["accept"]}
    if truth["culprit"]:  # otherwise all did it alike, and the one that is left is as good
        assert culprit_of(answers[0]) in (None, truth["culprit"])


def _half(content: bytes, cut: bool, from_the_top: bool) -> bytes:
    lines = content.splitlines(keepends=True)
    middle = len(lines) // 2
    if not cut:
        return content
    return b"".join(lines[middle:] if from_the_top else lines[:middle])
