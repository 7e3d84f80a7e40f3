from __future__ import annotations

import ast
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.collectives.group_timeouts import slurm_seconds
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.python import durations


def program(text: str) -> tuple[Program, ast.expr]:
    """The script, and the expression it ends with."""
    tree = ast.parse(text)
    last = tree.body[-1]
    assert isinstance(last, ast.Expr)
    return Program(tree, text, "train.py"), last.value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("5", "int"),
        ("-5", "int"),
        ("2.5", "float"),
        ("'5'", "str"),
        ("True", ""),
        ("None", ""),
        ("30 * 60", "int"),
        ("60 / 2", "float"),
        ("60 * patience", ""),  # a timedelta, perhaps
        ("5 if fast else 10", "int"),
        ("5 if fast else patience", ""),
        ("int(x)", "int"),
        ("later(5)", ""),
        ("delta.total_seconds()", "float"),
        ("import os\nos.environ['T']", "str"),
        ("T = 5\nT", "int"),
        ("T = 5\nU = T * 2\nU", "int"),
        ("T = 5\nT = timedelta(1)\nT", ""),
        ("T = T\nT", ""),
        ("for T in range(3): pass\nT", ""),
        ("p.add_argument('--wait', type=float)\nargs.wait", "float"),
        ("p.add_argument('--wait', type=seconds)\nargs.wait", ""),
        ("p.add_argument('--wait', type=int)\nargs.wait = delta(args.wait)\nargs.wait", ""),
        ("self.wait", ""),
    ],
)
def test_what_is_surely_a_number(text: str, kind: str) -> None:
    assert durations.number_kind(*program(text)) == kind


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("from datetime import timedelta\ntimedelta(minutes=5)", 300),
        ("timedelta(0, 30)", 30),  # the import forgotten
        ("import datetime as d\nd.timedelta(hours=1, seconds=5)", 3605),
        ("from datetime import timedelta\n3 * timedelta(minutes=2)", 360),
        ("from datetime import timedelta\nN = 7\nT = timedelta(minutes=N)\nT", 420),
        ("from datetime import timedelta\ntimedelta(minutes=n)", None),
        ("from datetime import timedelta\ntimedelta(centuries=1)", None),
        ("from datetime import timedelta\ntimedelta(minutes=1 / 0)", None),
        ("from mine import timedelta\ntimedelta(minutes=5)", None),
        ("5", None),
    ],
)
def test_how_long_a_timedelta_is(text: str, seconds: float | None) -> None:
    assert durations.seconds(*program(text)) == seconds


@given(
    st.dictionaries(
        st.sampled_from(durations.PARTS), st.integers(min_value=0, max_value=10_000), max_size=7
    )
)
def test_a_timedelta_is_as_long_as_python_says(parts: dict[str, int]) -> None:
    text = f"timedelta({', '.join(f'{name}={value}' for name, value in parts.items())})"
    told = durations.seconds(*program(text))
    assert told == pytest.approx(dt.timedelta(**parts).total_seconds())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("01:30:00", 5400),
        ("2-12", 216000),
        ("1-00:30", 88200),
        ("1-01:01:01", 90061),
        ("UNLIMITED", None),
        ("", None),
        ("1:2:3:4", None),
    ],
)
def test_how_slurm_writes_time(text: str, seconds: int | None) -> None:
    assert slurm_seconds(text) == seconds
