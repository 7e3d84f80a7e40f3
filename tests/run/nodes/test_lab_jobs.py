"""A training on two lab hosts that loses one of them; the whole table is bench/detect_nodes.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import catalogue
from holdfast.drill.lab import Lab, LabUnavailableError
from tests.run.nodes import fault_rows, quiet_rows, start_rows
from tests.run.nodes.fault_rows import (
    FaultRow,
    cut_host,
    is_fenced_and_joins_again,
    kill_launcher,
)
from tests.run.nodes.measure import play

KILLED = FaultRow(
    "killed", "the launcher of the second host is killed", kill_launcher, ("node-lost",),
    ("bravo",), silent=("bravo",), world=1, hosts=2, nnodes="1:2", asked=("pause=0.01",),
)  # fmt: skip
CUT = FaultRow(
    "cut", "the cable of the second host is out", cut_host, fault_rows.LOST,
    ("bravo",), silent=("bravo",), world=1, hosts=2, nnodes="1:2", asked=("pause=0.01",),
    then=is_fenced_and_joins_again,
)  # fmt: skip


@pytest.mark.lab
@pytest.mark.xdist_group("nodes-lab-jobs")
@pytest.mark.parametrize(
    "row", [pytest.param(KILLED, marks=pytest.mark.long), CUT], ids=lambda row: row.name
)
def test_a_lost_node_is_named_and_the_rest_goes_on(row: FaultRow, tmp_path: Path) -> None:
    try:
        Lab().close()
    except LabUnavailableError as problem:
        pytest.skip(str(problem))
    seen = play(row, tmp_path)
    assert not seen.problems, f"{seen.problems}\n{seen.screen}"


def test_every_fault_that_the_table_expects_is_in_the_catalogue() -> None:
    known = {entry.fault.slug for entry in catalogue.entries()}
    rows = fault_rows.ROWS
    assert {slug for row in rows for slug in (*row.slugs, *row.beside)} <= known
    assert {slug for row in quiet_rows.ROWS for slug in row.may_notice} <= {"waiting", *known}


def test_every_row_has_a_name_of_its_own() -> None:
    names = [row.name for row in (*start_rows.ROWS, *fault_rows.ROWS, *quiet_rows.ROWS)]
    assert len(set(names)) == len(names)
