"""What a killed launcher left behind: ours is ended, everybody else's is not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.runs import leftovers, owner
from tests.cli.holdfast_command import needs_root, wait_until
from tests.cli.jobs import job
from tests.places import TARGETS
from tests.run.launch.test_orphans import helpers_end, noted
from tests.run.launching import lives
from tests.run.runs_on_disk import a_run, add_records, living_run

ENDED_WELL = {"kind": "end", "exit_code": 0}
ENDED_BADLY = {"kind": "end", "exit_code": 137}


@contextlib.contextmanager
def helper(
    paths: RunPaths, *, slurm_job: str = "", **options: int
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, leftovers.RUN: paths.folder, "RANK": "3"}
    if slurm_job:
        environment["SLURM_JOB_ID"] = slurm_job
    process = subprocess.Popen(
        ["sleep", "600"], env=environment, start_new_session=True, user=options.get("user")
    )
    try:
        wait_until(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("records", [(), (ENDED_BADLY,)], ids=["killed", "stopped by force"])
def test_leftovers_of_a_run_without_launcher_are_ended(
    tmp_path: Path, records: tuple[dict[str, object], ...]
) -> None:
    paths = a_run(tmp_path)
    with helper(paths) as left:
        add_records(paths, *records)
        ended = leftovers.end(str(tmp_path))
        assert [(p.rank, p.pid, p.name) for p in ended.processes] == [(3, left.pid, "sleep")]
        assert (ended.runs, ended.stuck) == ((paths.run_id,), ())
        assert left.wait(10) == -signal.SIGTERM
    assert leftovers.end(str(tmp_path)).processes == ()


def test_what_a_rank_submitted_or_started_elsewhere_is_told_about_and_left_alone(
    tmp_path: Path,
) -> None:
    paths = a_run(tmp_path)
    with helper(paths, slurm_job="77") as submitted:
        left = leftovers.end(str(tmp_path))
        assert (left.processes, left.runs) == ((), ())
        told = f"sleep (pid {submitted.pid}) of {paths.run_id}: it belongs to Slurm job 77"
        assert left.spared == (told,)
        assert submitted.poll() is None


SCOPE = "0::/user.slice/session-3.scope"


@pytest.mark.parametrize(
    ("process", "spared"),
    [
        ({}, ""),
        ({"started": 60.0}, ""),
        ({"started": 1800.0}, "it was started after that run had ended"),
        ({"slurm_job": "8"}, "it belongs to Slurm job 8"),
        ({"slurm_job": ""}, "it is not in a Slurm job"),
        ({"cgroup": SCOPE + "/below"}, ""),
        ({"cgroup": ""}, ""),  # it is gone, or may not be seen
        ({"cgroup": SCOPE + "2"}, "it is in another cgroup, as another job or service is"),
        ({"cgroup": "0::/system.slice/x"}, "it is in another cgroup, as another job or service is"),
    ],
)
def test_only_what_the_run_itself_left_is_ended(process: dict[str, Any], spared: str) -> None:
    launcher = msgspec.structs.replace(
        owner.this_process(["holdfast"]), slurm_job="7", cgroup=f"1:x:/|{SCOPE}"
    )
    run = leftovers.AbandonedRun(launcher, ended=100.0)
    cgroup = process.pop("cgroup", SCOPE)
    found = {"started": 50.0, "slurm_job": "7", "cgroup": cgroup and f"1:x:/a|{cgroup}", **process}
    assert leftovers.why_spared(run, **found) == spared


def test_a_run_of_an_older_holdfast_did_not_note_its_job() -> None:
    launcher = msgspec.structs.replace(
        owner.this_process(["holdfast"]), slurm_job=None, cgroup=None
    )
    run = leftovers.AbandonedRun(launcher, ended=100.0)
    assert leftovers.why_spared(run, started=1.0, slurm_job="7", cgroup="0::/x") == ""


def test_others_are_left_alone(tmp_path: Path) -> None:
    with living_run(tmp_path / "a") as (run_id, _):
        cases = [
            RunPaths(str(tmp_path / "a"), run_id),  # its launcher lives
            a_run(tmp_path / "a", ENDED_WELL),  # left on purpose
            a_run(tmp_path / "a", boot_id="another"),
            a_run(tmp_path / "a", pid_namespace=1),
            a_run(tmp_path / "a", started_ticks=1 << 60),  # older than its launcher
            a_run(tmp_path / "b"),  # another folder's
            RunPaths(str(tmp_path / "a"), "no-such-run"),
        ]
        with contextlib.ExitStack() as stack:
            bystanders = [stack.enter_context(helper(paths)) for paths in cases]
            assert leftovers.end(str(tmp_path / "a")).processes == ()
            assert [b.poll() for b in bystanders] == [None] * len(cases)


@pytest.mark.lab
def test_another_users_process_is_not_ours(tmp_path: Path) -> None:
    needs_root()
    with helper(a_run(tmp_path), user=65534) as theirs:
        assert list(leftovers.find(str(tmp_path))) == []
        assert theirs.poll() is None


def test_who_works_in_a_shell_that_a_rank_started_is_spared(tmp_path: Path) -> None:
    paths = a_run(tmp_path)
    program = (
        "from holdfast.run.runs import leftovers; "
        f"print(leftovers.end({str(tmp_path)!r})._replace(lost=None))"
    )
    shell = ["sh", "-c", '"$@"; echo alive', "sh", sys.executable, "-c", program]
    done = subprocess.run(
        shell, env={**os.environ, leftovers.RUN: paths.folder}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    nothing = "EndedLeftovers(processes=(), runs=(), stuck=(), gap='', spared=(), lost=None)"
    assert done.stdout.splitlines() == [nothing, "alive"]


def test_a_look_that_hangs_does_not_hang_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(_root: str) -> list[object]:
        signal.pause()
        return []

    monkeypatch.setattr(leftovers, "find", hang)
    monkeypatch.setattr(leftovers, "SECONDS", 0.1)
    assert leftovers.end(str(tmp_path)) == leftovers.EndedLeftovers(
        (), (), (), gap="no answer within 0.1 s"
    )


@pytest.mark.long
def test_the_next_launch_ends_what_a_killed_launcher_left(tmp_path: Path) -> None:
    """Its ranks go with it; their helpers are ended by the next one, which says so."""
    runs, detach = ("--runs", str(tmp_path / "runs")), str(TARGETS / "detach.py")
    with helpers_end(tmp_path):
        with job(tmp_path / "1", *runs, detach, str(tmp_path), "wait") as killed:
            wait_until(lambda: len(noted(tmp_path)) == 2, seconds=90)
            killed.process.kill()
            killed.process.wait()
        assert all(lives(pid) for pid in noted(tmp_path))
        script = tmp_path / "fine.py"
        script.write_text("")
        with job(tmp_path / "2", *runs, str(script)) as after:
            assert after.finish() == 0, after.err
        assert not any(lives(pid) for pid in noted(tmp_path))
        assert "rank 0's child sh" in after.err
        assert "whose launcher is gone" in after.err
        assert "launcher-killed: the run before this one has no end" in after.err
