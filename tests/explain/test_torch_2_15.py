"""torch 2.15: recordings of our own Gloo jobs with it, and the words of its NCCL groups.

torch_2_15/: what `_dump_fr_trace` of each rank wrote, and what torchrun showed, of jobs of four
ranks; only paths were replaced, by others of the same length. `hook_rank_1` is of a backend that
torch records from outside (FlightRecorderHook). The words of NCCL groups are composed from
c10d/nccl2/*.cpp, hooks/FlightRecorderHook.cpp and torch/distributed/_watchdog.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import catalogue
from holdfast.analysis.collectives import dump_file
from holdfast.explain.diagnose import Explanation, diagnose
from holdfast.explain.gather import gather_bytes
from holdfast.findings import Grade
from tests.analysis.collectives.nccl_documents import Written

RECORDED = Path(__file__).parent / "torch_2_15"


def explain(files: dict[str, bytes]) -> Explanation:
    return diagnose(gather_bytes(files), (entry.fault for entry in catalogue.entries()))


def of_lines(*lines: str) -> Explanation:
    return explain({"job.log": "\n".join(lines).encode()})


def recorded(name: str, *ranks: int) -> dict[str, bytes]:
    files = {f"trace_{rank}": RECORDED / f"{name}_rank_{rank}" for rank in ranks}
    return {shown: path.read_bytes() for shown, path in files.items()}


def glog(rank: int, file: str, text: str) -> str:
    return f"[rank{rank}]:[E1116 13:36:53.276000000 {file}:233] {text}"


# --- recordings ----------------------------------------------------------------------------------


def test_the_rank_that_slept_is_named_from_the_dumps() -> None:
    first = explain(recorded("stuck", 0, 1, 2, 3)).diagnoses[0]
    assert first.slug == "rank-stuck"
    assert first.culprit is not None
    assert (first.culprit.rank, tuple(first.victims)) == (2, (0, 1, 3))


def test_the_rank_in_another_collective_is_named_from_the_dumps() -> None:
    found = explain(recorded("mismatch", 0, 1, 2, 3))
    assert {"collective-mismatch", "rank-conditional-code"} & {one.slug for one in found.diagnoses}
    assert found.diagnoses[0].culprit is not None
    assert found.diagnoses[0].culprit.rank in (0, 1)  # two members, each with its own operation


def test_the_json_form_tells_the_same() -> None:
    pickled = dump_file.read((RECORDED / "stuck_rank_2").read_bytes())
    as_json = dump_file.read((RECORDED / "stuck_rank_2.json").read_bytes())
    assert (as_json.entered, as_json.finished) == (pickled.entered, pickled.finished)
    assert pickled.entered == {"0": 3, "2": 3}


def test_what_is_retired_when_it_is_issued_may_not_be_over() -> None:
    """Of a backend whose end torch never hears of: only what came before is over."""
    read = dump_file.read((RECORDED / "hook_rank_1").read_bytes())
    assert (read.entered, read.finished) == ({"0": 3, "1": 2}, {"0": 2, "1": 1})
    assert read.members == {"0": (0, 1, 2, 3), "1": (1, 3)}


def test_dumps_of_nccl_groups_name_the_rank_that_never_came() -> None:
    waiting = Written(backend="nccl2").past(3).collective("scheduled").document()
    late = Written(backend="nccl2").past(3).document()
    files = {f"comm_lib_trace_rank_{rank}": late if rank == 1 else waiting for rank in range(4)}
    first = explain(files).diagnoses[0]
    assert first.slug == "rank-stuck"
    assert first.culprit is not None
    assert (first.culprit.rank, tuple(first.victims)) == (1, (0, 2, 3))


def test_a_prefix_of_host_and_rank_is_no_part_of_the_message() -> None:
    """--log-line-prefix-template '${hostname}:${rank}: ': the waiting ranks are no cause."""
    found = explain({"torchrun.log": (RECORDED / "torchrun.log").read_bytes()})
    assert [one.slug for one in found.diagnoses] == ["rank-stuck"]
    assert found.diagnoses[0].culprit is None or found.diagnoses[0].culprit.rank is None
    assert tuple(found.diagnoses[0].victims) == (0, 1)


# --- words ---------------------------------------------------------------------------------------

DUMPING = "FlightRecorderHook: dumping trace on collective failure"
TIMEOUT = "timeout - timeout watchdog detected operation timeout"
ABORTED = (
    "E1116 13:37:18.901000 14729 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
    "(exitcode: -6) local_rank: 0 (pid: 14907) of binary: /usr/bin/python3"
)


def timed_out(rank: int) -> tuple[str, ...]:
    label = f"[TC][rank={rank}][name=0]"
    return (
        glog(rank, "WorkNCCL.cpp", f"{label} Operation timed out after 600012 ms"),
        glog(rank, "FlightRecorderHook.cpp", DUMPING),
        glog(
            rank,
            "ProcessGroupNCCL.cpp",
            f"{label} Aborting process on rank {rank} due to {TIMEOUT}",
        ),
        f"[rank{rank}]: Fatal Python error: Aborted",
    )


STORE = "wait timeout after 600000ms, keys: /default_pg/0//cuda//default_pg/nccl_storekey_0"
WATCHDOG_PY = "14907 torch/distributed/_watchdog.py"
RAISED = (
    "[rank1]: torch.distributed.DistBackendError: Watchdog caught collective operation timeout: "
    "NCCL operation timed out"
)
STUCK = (
    f"W1116 13:36:53.276000 {WATCHDOG_PY}:341] Watchdog event loop appears stuck (no response "
    "within 30.0s)"
)


@pytest.mark.parametrize(
    ("lines", "slug", "rank", "victims"),
    [
        # It aborts itself because another rank did not come: no crash in native code.
        ((*timed_out(0), *timed_out(1), ABORTED), "rank-stuck", None, (0, 1)),
        ((RAISED,), "rank-stuck", None, (1,)),
        # The first rank of the group puts NCCL's id into the store.
        (
            tuple(f"[rank{r}]: torch.distributed.DistStoreError: {STORE}" for r in (1, 2)),
            "rank-stuck",
            0,
            (1, 2),
        ),
        ((STUCK,), "gil-held", None, ()),
    ],
    ids=["timeout", "raised", "unique-id", "python-watchdog-stuck"],
)
def test_words_of_torch_2_15(
    lines: tuple[str, ...], slug: str, rank: int | None, victims: tuple[int, ...]
) -> None:
    first = of_lines(*lines).diagnoses[0]
    assert (first.slug, first.grade) == (slug, Grade.POSSIBLE)
    assert (first.culprit.rank if first.culprit else None) == rank
    assert tuple(sorted(first.victims)) == victims


def test_an_abort_by_the_python_watchdog_is_no_crash_in_native_code() -> None:
    found = of_lines(
        f"[rank0]: W1116 13:36:53.276000 {WATCHDOG_PY}:304] Watchdog stream timeout fired (id=3)",
        f"[rank0]: E1116 13:36:53.277000 {WATCHDOG_PY}:311] Default timeout callback fired, "
        "calling os.abort()",
        "[rank0]: Fatal Python error: Aborted",
        ABORTED,
    )
    assert "native-crash" not in [one.slug for one in found.diagnoses]
