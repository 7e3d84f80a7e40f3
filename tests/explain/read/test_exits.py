"""Exits as launchers report them: codes, ranks, which was first, and what was only teardown."""

from __future__ import annotations

import pytest

from holdfast.analysis.logs.wreckage import Exit
from holdfast.explain.read import exits
from tests.analysis.logs.patterns.made import wreckage


def told(*lines: str) -> tuple[Exit, ...]:
    return exits.exits(wreckage(*lines).sightings)


SUMMARY = (
    "Sending process 11 closing signal SIGTERM",
    "failed (exitcode: -9) local_rank: 2 (pid: 13) of binary: /usr/bin/python",
    "Failures:",
    "  host      : node7",
    "  rank      : 8 (local_rank: 0)",
    "  exitcode  : -15 (pid: 11)  (SIGTERM)",
    "  traceback : Signal 15 (SIGTERM) received by PID 11",
    "Root Cause (first observed failure):",
    "  host      : node7",
    "  rank      : 10 (local_rank: 2)",
    "  exitcode  : -9 (pid: 13)  (SIGKILL)",
    "  traceback : Signal 9 (SIGKILL) received by PID 13",
)


def test_torchruns_lines_and_rows_become_one_end_per_process() -> None:
    by_pid = {one.pid: one for one in told(*SUMMARY)}
    assert set(by_pid) == {11, 13}
    killed, swept = by_pid[13], by_pid[11]
    assert (killed.code, killed.rank, killed.local_rank, killed.host) == (-9, 10, 2, "node7")
    assert (killed.first, killed.teardown) == (True, False)
    assert (swept.code, swept.rank, swept.first, swept.teardown) == (-15, 8, False, True)


def test_the_older_summary_has_its_root_first() -> None:
    first, second = told(
        "Root Cause:",
        "  rank: 2 (local_rank: 2)",
        "  exitcode: 1 (pid: 13)",
        "Other Failures:",
        "  rank: 0 (local_rank: 0)",
        "  exitcode: -15 (pid: 11)",
    )
    assert (first.rank, first.first, second.rank, second.first) == (2, True, 0, False)


def test_what_did_not_stop_in_time_was_killed_by_the_launcher() -> None:
    (one,) = told(
        "Unable to shutdown process 11 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL",
        "failed (exitcode: -9) local_rank: 0 (pid: 11) of binary: python",
    )
    assert one.teardown


def test_sigterm_alone_came_from_outside() -> None:
    (one,) = told("failed (exitcode: -15) local_rank: 0 (pid: 11) of binary: python")
    assert not one.teardown


@pytest.mark.parametrize(
    ("line", "code", "rank", "teller"),
    [
        ("['python', 't.py'] exits with return code = -9", -9, None, "deepspeed"),
        (
            "E: CalledProcessError: Command 'x' died with <Signals.SIGSEGV: 11>.",
            -11,
            None,
            "accelerate",
        ),
        (
            "CalledProcessError: Command 'x' returned non-zero exit status 137.",
            -9,
            None,
            "accelerate",
        ),
        ("process 2 terminated with signal SIGKILL", -9, 2, "torch.multiprocessing"),
        ("process 2 terminated with exit code 3", 3, 2, "torch.multiprocessing"),
        (
            "mpirun noticed that process rank 2 with PID 7 on node n1 exited on signal 9 (Killed).",
            -9,
            2,
            "mpirun",
        ),
        ("Process 2 exit with status code 137.", -9, 2, "horovod"),
        ("      Reason:       OOMKilled", -9, None, "kubernetes"),
        ("run.sh: line 12:  1011 Killed      python train.py", -9, None, "shell"),
        ("Segmentation fault (core dumped)", -11, None, "shell"),
        ("srun: error: node7: task 3: Out Of Memory", -9, 3, "slurm"),
        ("srun: error: node7: task 3: Exited with exit code 1", 1, 3, "slurm"),
    ],
)
def test_one_line_reports_an_exit(line: str, code: int, rank: int | None, teller: str) -> None:
    (one,) = told(line)
    assert (one.code, one.rank, one.teller) == (code, rank, teller)


def test_lists_of_slurm_tasks() -> None:
    ends = told("srun: error: n1: tasks 0-2,5: Aborted (core dumped)")
    assert [(one.rank, one.code, one.host) for one in ends] == [
        (rank, -6, "n1") for rank in (0, 1, 2, 5)
    ]


def test_a_slurm_task_that_is_a_launcher_is_no_rank() -> None:
    ends = told(*SUMMARY, "srun: error: n1: task 1: Exited with exit code 1")
    assert ends[-1].teller == "slurm"
    assert ends[-1].rank is None


def test_slurm_sweeps_up_after_the_first() -> None:
    first, rest = told(
        "srun: error: n1: task 3: Killed",
        "srun: Terminating StepId=7.0",
        "srun: error: n1: task 1: Killed",
    )
    assert (first.teardown, rest.teardown) == (False, True)


def test_mpirun_reports_in_two_lines() -> None:
    (one,) = told("  Process name: [[51823,1],2]", "  Exit code:    1")
    assert (one.rank, one.code, one.first) == (2, 1, True)


@pytest.mark.parametrize(("number", "code"), [(0, 0), (1, 1), (137, -9), (255, 255), (-9, -9)])
def test_a_shells_codes(number: int, code: int) -> None:
    assert exits.code_of(number) == code
