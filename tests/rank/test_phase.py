"""`holdfast.phase` and `holdfast.heartbeat`, and the names of the library."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdfast
from tests.rank.ranks import bare, own_stdin, started, wait_for


def test_every_public_name_is_there_and_comes_late() -> None:
    assert set(holdfast.__all__) <= set(dir(holdfast))
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = holdfast.nonsense  # type: ignore[attr-defined]
    done = bare("import sys, holdfast; print([m for m in sys.modules if 'holdfast' in m])")
    assert done.stdout == "['holdfast']\n"


PHASES = """
import holdfast, sys

@holdfast.phase('evaluation')
def evaluate():
    print('inside', flush=True)
    sys.stdin.readline()
    with holdfast.phase('save'):
        print('deeper', flush=True)
        sys.stdin.readline()
    print('back', flush=True)
    sys.stdin.readline()

evaluate()
for _ in range(3):
    holdfast.heartbeat()
print('out', flush=True)
sys.stdin.readline()
"""


def test_the_innermost_phase_is_on_the_page(tmp_path: Path) -> None:
    with own_stdin() as write_end, started(tmp_path, PHASES) as rank:
        for mark, phase in (
            ("inside", "evaluation"),
            ("deeper", "save"),
            ("back", "evaluation"),
            ("out", ""),
        ):
            wait_for(lambda mark=mark: rank.printed(mark), mark)  # type: ignore[misc]
            assert rank.beat.phase == phase
            os.write(write_end, b"\n")
        rank.finish()
        assert rank.beat.steps == 3  # no optimizer: the beats are the steps
        assert rank.beat.beat_at == 0  # that is for the beat thread, and there is none


def test_without_a_launcher_hints_are_nothing() -> None:
    done = bare(
        "import holdfast\nwith holdfast.phase('x'):\n    holdfast.heartbeat()\n"
        "print(holdfast.phase('y')(lambda: 5)())"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("5\n", "", 0)
