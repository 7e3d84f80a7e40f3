"""Tables as torchfrtrace prints them, whole and cut, and what cannot be read from them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather_bytes
from holdfast.explain.read import recorder_table
from holdfast.explain.read.recorder_table import UnreadableTableError
from holdfast.findings import Diagnosis


def cell(op: str, number: int, state: str, *, size: int = 8, verbose: bool = True) -> str:
    if not verbose:
        return f"{op}(input_sizes=[[{size}]], state={state})"
    return (
        f"{op}(timestamp_created={number}, input_sizes=[[{size}]], output_sizes=[[{size}]], "
        "input_dtypes=['Float'], output_dtypes=['Float'], collective_seq_id | p2p_seq_id="
        f"{number}, pg_name=0733, pg_description=default_pg, pg_size=4, stack_id=0, state={state})"
    )


def table(columns: dict[int, list[str]]) -> str:
    """As tabulate lays it out."""
    rows = max(len(cells) for cells in columns.values())
    widths = {r: max(map(len, (f"Rank {r}", *cells))) for r, cells in columns.items()}
    lines = ["  ".join(f"Rank {r}".ljust(w) for r, w in widths.items()).rstrip()]
    lines.append("  ".join("-" * w for w in widths.values()))
    for n in range(rows):
        cells = [(c[n] if n < len(c) else "").ljust(widths[r]) for r, c in columns.items()]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(["built groups, memberships", *lines, ""])


def job(*, last: dict[int, tuple[str, int]], verbose: bool = True) -> str:
    """Four ranks, five collectives that are over, and the last one of each."""
    return table(
        {
            rank: [
                *(cell("all_reduce", n, "completed", verbose=verbose) for n in range(1, 6)),
                *(
                    cell(op, 6, "scheduled", size=size, verbose=verbose)
                    for who, (op, size) in last.items()
                    if who == rank
                ),
            ]
            for rank in range(4)
        }
    )


def answer(text: str) -> Diagnosis:
    faults = [entry.fault for entry in catalogue.entries()]
    return diagnose(gather_bytes({"fr.txt": text.encode()}), faults).diagnoses[0]


@pytest.mark.parametrize("verbose", [True, False])
def test_the_rank_that_did_not_come_is_named(verbose: bool) -> None:
    same = ("all_reduce", 8)
    found = answer(job(last={0: same, 1: same, 3: same}, verbose=verbose))
    assert (found.slug, found.culprit and found.culprit.rank) == ("rank-stuck", 2)
    assert list(found.victims) == [0, 1, 3]


@pytest.mark.parametrize("verbose", [True, False])
def test_the_rank_with_another_size_is_named(verbose: bool) -> None:
    last = {rank: ("all_reduce", 17 if rank == 1 else 8) for rank in range(4)}
    found = answer(job(last=last, verbose=verbose))
    assert (found.slug, found.culprit and found.culprit.rank) == ("collective-mismatch", 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (job(last={0: ("barrier", 1), 1: ("all_reduce", 8)}, verbose=False), "--verbose"),
        (table({0: [cell("barrier", 1, "scheduled")], 1: []}), "give the dumps"),
        ("Rank 0  Rank 1\n", "cut short"),
        (table({0: ["what(is this", "?"], 1: []}), "unknown form"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, why: str) -> None:
    with pytest.raises(UnreadableTableError, match=why):
        recorder_table.read(text)
    assert recorder_table.looks_like(text.encode())
    (source,) = gather_bytes({"fr.txt": text.encode()}).sources
    assert why in source.problem


@pytest.mark.parametrize("line", ["Rank 3: Traceback", "Rank 0 failed", "[Rank 1] Watchdog", ""])
def test_other_lines_are_no_table(line: str) -> None:
    assert not recorder_table.looks_like(f"{line}\nmore\n".encode())


@given(st.text(alphabet="Rank 01-()[]=,|\n'{}senduv", max_size=300))
def test_never_raises_anything_else(text: str) -> None:
    with contextlib.suppress(UnreadableTableError):
        assert recorder_table.read(f"Rank 0  Rank 1\n------  ------\n{text}").keys() == {0, 1}
