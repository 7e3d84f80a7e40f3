"""From what was collected to Wreckage: ranks, exits, positions."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.analysis.logs.patterns import nccl, watchdog
from holdfast.analysis.logs.wreckage import LogLine, Sighting, Wreckage
from holdfast.analysis.scene.scene import Recorder
from holdfast.explain.gather import gather
from holdfast.explain.read.collected import FIRST, LAST, Collected


def read(*lines: str) -> Wreckage:
    return gather([], stdin=io.BytesIO("\n".join(lines).encode()))


def init(rank: int, pid: int, *, nranks: int = 4, comm: str = "0xa", how: str = "START") -> str:
    return (
        f"vm:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x{pid:x} rank {rank} nranks "
        f"{nranks} cudaDev 0 nvmlDev 0 busId 60 commId {comm} - Init {how}"
    )


WATCHDOG = (
    "[rank1]:[E1115 01:03:15.000000000 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=11, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=12000) ran for 12000 milliseconds before timing out."
)
STATUS = (
    "[rank1]:[E1115 01:03:15.100000000 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) "
    "Rank 1]  failure detected by watchdog at work sequence id: 11 PG status: last enqueued work: "
    "12, last completed work: 10"
)


def test_nccl_lines_map_pids_to_ranks() -> None:
    found = read(
        *(init(rank, 100 + rank) for rank in range(4)),
        "",
        "vm:102:300 [0] misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote "
        "peer 192.0.2.2<4>",
        "[9.000000] Out of memory: Killed process 103 (python)",
    )
    (warned,) = found.seen(nccl.WARN)
    assert warned.rank == 2
    assert found.world_size == 4
    assert [(one.rank, one.pid, one.host) for one in found.ranks][2] == (2, 102, "vm")


def test_groups_side_by_side_tell_no_global_ranks() -> None:
    found = read(
        *(init(n % 2, 100 + n, nranks=2, comm=f"0x{n // 2}") for n in (0, 2, 1, 3)),
        "vm:102:300 [0] misc/socket.cc:57 NCCL WARN something",
    )
    assert found.seen(nccl.WARN)[0].rank is None


def test_a_restart_gives_a_rank_a_second_pid() -> None:
    found = read(
        *(init(n, 100 + n, nranks=2, comm="0x1") for n in range(2)),
        *(init(n, 200 + n, nranks=2, comm="0x2") for n in range(2)),
        "vm:201:300 [0] misc/socket.cc:57 NCCL WARN something",
    )
    assert found.seen(nccl.WARN)[0].rank == 1


def test_how_far_each_came() -> None:
    found = read(
        init(0, 100, nranks=2), init(1, 101, nranks=2), init(0, 100, nranks=2, how="COMPLETE")
    )
    stages = {one.rank: one.nccl_stage for one in found.ranks}
    assert stages[0] > stages[1] >= 0


def test_messages_of_the_watchdog_make_a_recorder() -> None:
    found = read(WATCHDOG, STATUS)
    rank = found.rank(1)
    assert rank
    assert isinstance(rank.recorder, Recorder)
    assert (rank.recorder.entered, rank.recorder.finished) == ({"0": 12}, {"0": 10})
    (one,) = rank.recorder.collectives
    assert (one.group, one.sequence, one.op, one.shape) == ("0", 11, "all_reduce", "[8]")
    assert rank.last
    assert rank.last.at
    assert one.created == pytest.approx(rank.last.at - 12.1)
    assert not rank.dumped


def test_local_ranks_become_ranks_where_the_launcher_prints_the_offset() -> None:
    found = read(
        "[default1]:Traceback (most recent call last):",
        '[default1]:  File "a.py", line 1, in <module>',
        "[default1]:ValueError: x",
        "  rank      : 5 (local_rank: 1)",
        "  exitcode  : 1 (pid: 13)",
    )
    (raised,) = found.raised
    assert (raised.rank, raised.kind, raised.line.number) == (5, "ValueError", 3)
    assert found.exits[0].rank == 5


def test_local_ranks_of_one_machine_are_ranks() -> None:
    found = read("[default1]:ValueError: x", "[default0]:step 1")
    assert found.raised[0].rank == 1


def test_the_launchers_own_exception_is_an_end_not_an_exception() -> None:
    found = read(
        "Traceback (most recent call last):",
        '  File "run.py", line 1, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "Root Cause (first observed failure):",
        "  rank      : 2 (local_rank: 2)",
        "  exitcode  : 1 (pid: 13)",
        "  traceback : Traceback (most recent call last):",
        '    File "train.py", line 7, in main',
        "  ValueError: no shard",
    )
    assert [one.kind for one in found.raised] == ["ValueError"]
    assert found.exits[0].first


def test_interleaved_exceptions_are_all_caught() -> None:
    lines = []
    for text in (
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "KeyError: 1",
    ):
        lines += [f"[rank{rank}]: {text}" for rank in range(3)]
    assert sorted(one.rank or 0 for one in read(*lines).raised) == [0, 1, 2]


def test_settings_and_versions() -> None:
    found = read(
        "vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",
        "NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE='1' torchrun train.py",
        "please try NCCL_DEBUG=INFO",
        "NCCL version 2.28.9+cuda13.0",
        "PyTorch version: 2.11.0+cu130",
    )
    assert found.settings == {
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_IB_DISABLE": "1",
        "NCCL_P2P_DISABLE": "1",
    }
    assert found.versions == {"nccl": "2.28.9", "cuda": "13.0", "torch": "2.11.0+cu130"}


def test_only_the_last_attempt_counts(tmp_path: Path) -> None:
    for attempt, text in ((0, "KeyError: old"), (1, "ValueError: new")):
        folder = tmp_path / f"attempt_{attempt}" / "0"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(text + "\n")
    found = gather([str(tmp_path)])
    assert [one.kind for one in found.raised] == ["ValueError"]
    assert found.ranks[0].logs == (str(tmp_path / "attempt_1" / "0" / "stderr.log"),)


def test_error_files_and_stacks_find_their_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "attempt_0" / "1"
    folder.mkdir(parents=True)
    (folder / "error.json").write_text('{"message": {"message": "OSError: gone"}}')
    (tmp_path / "rank0.stack").write_text(
        'Process 77: python train.py\n\nThread 77 (idle): "MainThread"\n    read (data.py:88)\n'
    )
    found = gather([str(tmp_path)])
    assert [(one.rank, one.kind) for one in found.raised] == [(1, "OSError")]
    stuck = found.rank(0)
    assert stuck
    assert stuck.stack
    assert stuck.stack.frames[0].function == "read"


def test_a_kernel_log_is_known_as_one(tmp_path: Path) -> None:
    log = tmp_path / "dmesg"
    log.write_text("[    1.000000] usb 1\n[    9.000000] Killed process 103 (python)\n")
    assert [one.kind for one in gather([str(log)]).sources] == ["kernel"]


def test_many_of_a_kind_are_counted_not_kept() -> None:
    findings = Collected()
    for number in range(1000):
        findings.see(
            Sighting(
                pattern=watchdog.STATUS.name,
                slug="",
                role=watchdog.STATUS.role,
                line=LogLine(text="x", source="a", number=number, rank=1),
                order=number,
            )
        )
    kept = findings.sightings()
    assert len(kept) == FIRST + LAST
    assert sum(one.count for one in kept) == 1000
    assert [kept[0].line.number, kept[-1].line.number] == [0, 999]


_PIECES = st.sampled_from(
    [
        WATCHDOG,
        STATUS,
        init(0, 100),
        init(1, 100, nranks=2),
        "Traceback (most recent call last):",
        "ValueError: x",
        "  rank      : 5 (local_rank: 7)",
        "  exitcode  : 1 (pid: 13)",
        "srun: error: n1: tasks 0-99999999: Killed",
        "  Exit code:    1",
        "terminate called after throwing an instance of 'x'",
        "NCCL_DEBUG=",
        "WORLD_SIZE=99999999999999999999",
        "1/2 clients joined",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_PIECES | st.text(max_size=10), max_size=12))
def test_any_mixture_is_taken(lines: list[str]) -> None:
    found = read(*lines)
    assert list(found.ranks) == sorted(found.ranks, key=lambda one: one.rank)
