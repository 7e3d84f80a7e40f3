from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.logs import nccl_tests
from holdfast.explain.gather import gather_bytes
from holdfast.explain.read import nccl_tests as file
from tests.analysis.logs import nccl_tests_output as made
from tests.analysis.logs.nccl_tests_output import GIB
from tests.analysis.logs.patterns.made import wreckage

SIZES = [8 << n for n in range(31)]


def test_a_whole_table_is_read() -> None:
    rows = [made.row(size, n + 1.0) for n, size in enumerate(SIZES)]
    (run,) = nccl_tests.runs(wreckage(*made.text(rows)))
    assert (run.ranks, run.nodes, run.gpus) == (8, ("node-a",), ("NVIDIA H100 80GB HBM3",))
    assert run.ended
    assert not run.wrong
    assert run.largest is not None
    assert (run.largest.size, run.largest.bandwidth) == (8 * GIB, 31e9)


def test_the_lines_of_other_programs_around_it_do_no_harm() -> None:
    lines = made.text([made.row(GIB, 300.0)])
    between = [f"node-a:1:1 [{n}] NCCL INFO Connected all rings" for n in range(3)]
    (run,) = nccl_tests.runs(wreckage(*between, *lines, "srun: done"))
    assert run.largest is not None
    assert run.largest.bandwidth == 300e9


SHORT = "           8             2     float     sum      -1"
LONG = "  1073741824     268435456     float     sum      -1"


@pytest.mark.parametrize(
    "line",
    [
        f"{SHORT}    42.14    0.00    7.00      0    40.06    0.00    0.00      0",
        f"{LONG}   9306.7    7.00    7.00    N/A   9291.5    6.00    6.00    N/A",
        "  1073741824     268435456     float    none       0   9306.7    7.00    7.00  2e+06",
        made.row(64, 7.0, more="     1.00     2.00     3.00     4.00"),  # -I
        made.row(64, 7.0) + "  2026-11-16 10:00:00",  # -S
    ],
)
def test_rows_of_several_versions(line: str) -> None:
    (run,) = nccl_tests.runs(wreckage(*made.text([line])))
    assert run.largest is not None
    assert run.largest.bandwidth == 7e9


def test_two_tests_in_one_log_are_two_runs() -> None:
    log = [*made.text([made.row(8, 1.0)]), *made.text([made.row(16, 2.0, 3)], wrong=3)]
    first, second = nccl_tests.runs(wreckage(*log))
    assert [row.size for row in first.rows] == [8]
    assert not first.wrong
    assert [(row.size, row.wrong) for row in second.rows] == [(16, 6)]
    assert second.wrong


def test_the_json_says_the_same_as_the_text() -> None:
    sizes: list[tuple[int, float, float | None]] = [(s, 300.0, 0.0) for s in SIZES]
    read = gather_bytes({"out.json": made.document(sizes)})
    (run,) = nccl_tests.runs(read)
    (text,) = nccl_tests.runs(wreckage(*made.text([made.row(size, 300.0) for size in SIZES])))
    assert (run.ranks, run.nodes, run.gpus, run.ended) == (
        text.ranks,
        text.nodes,
        text.gpus,
        text.ended,
    )
    assert [row[:3] for row in run.rows] == [row[:3] for row in text.rows]
    assert "hf_secret" not in repr(read)


def test_half_a_json_is_a_test_that_did_not_end() -> None:
    whole = made.document([(GIB, 300.0, 0.0)])
    read = gather_bytes({"out.json": whole[: len(whole) // 2]})
    assert read.sources[0].kind == "nccl-tests"
    assert "did not end" in read.sources[0].problem


@given(st.binary(max_size=200))
def test_what_merely_begins_like_it_is_refused_with_a_reason(rest: bytes) -> None:
    data = b'{"version":3,"start_time":' + rest
    told = file.read(data)
    assert isinstance(told, (str, file.NcclTestsFile))
    gather_bytes({"out.json": data})


def test_a_single_rank_has_no_bandwidth() -> None:
    content = made.document([(GIB, 1.0, None)]).replace(b'"bus_bw":1.0', b'"bus_bw":"nan"')
    (run,) = nccl_tests.runs(gather_bytes({"out.json": content}))
    assert run.rows == ()
