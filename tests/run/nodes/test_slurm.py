"""`srun holdfast run` on a real two-node Slurm: it starts by itself, and what Slurm does to it has
its right name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drill.lab.fixture import lab_or_skip
from tests.drill.lab.slurm import Slurm
from tests.run.nodes.slurm_job import SlurmJob, launcher_on

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("slurm-run")]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with lab_or_skip() as lab:
        yield Slurm(lab, tmp_path_factory.mktemp("slurm"), nodes=2)


def test_it_starts_by_itself_and_ends_well(slurm: Slurm, tmp_path: Path) -> None:
    with SlurmJob(slurm, tmp_path, steps=5) as job:
        job.srun()
        assert job.exit_code() == 0, job.printed()
        worlds = {step.world for steps in job.steps().values() for step in steps}
        assert worlds == {2}
        assert sorted(name.partition(".")[0] for name in job.steps()) == ["n1", "n2"]
        runs = sorted(path.name for path in (tmp_path / "login" / "runs").glob("[0-9]*"))
    assert runs[1] == f"{runs[0]}.n2", "one run, on a shared disk"


@pytest.mark.long
def test_a_token_that_node_0_hands_over_late_starts_the_job(slurm: Slurm, tmp_path: Path) -> None:
    """The others look for its file for 5 s, then meet it without a token, which it refuses."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "sitecustomize.py").write_text(
        "import holdfast.system.filesystem as of\n"
        f"of.REMOTE |= {{of.filesystem_at({str(tmp_path)!r})}}  # as on a file server\n"
    )
    with SlurmJob(slurm, tmp_path, steps=5) as job:
        job.srun(first='[ "$SLURM_NODEID" = 1 ] || sleep 9', HOME=str(home), PYTHONPATH=str(home))
        assert job.exit_code() == 0, job.printed()
    assert "token made for this run" in job.printed()


@pytest.mark.long
def test_a_task_that_is_killed_is_named_and_the_rest_continues(
    slurm: Slurm, tmp_path: Path
) -> None:
    with SlurmJob(slurm, tmp_path) as job:
        job.srun(flags=["--nnodes", "1:2"])
        job.wait_for_steps(40)
        job.mark()
        os.kill(launcher_on(slurm.nodes[1]), signal.SIGKILL)
        job.wait_for(lambda: "node-lost" in job.printed(), seconds=30)
        assert "n2" in job.printed().partition("node-lost")[2].splitlines()[0]
        again = job.goes_on(world=1)
        assert again is not None, job.printed()
        assert again.step >= 20, "resumed"
        job.send(slurm.controller, signal.SIGTERM)
        job.exit_code()
        assert not job.curve_breaks()


@pytest.mark.long
def test_scancel_stops_all_nodes_and_saves(slurm: Slurm, tmp_path: Path) -> None:
    with SlurmJob(slurm, tmp_path) as job:
        job.srun(flags=["--nnodes", "1:2"])
        job.wait_for_steps(30)
        job.mark()
        newest = job.newest()
        slurm.run(["scancel", job.number()])
        job.exit_code()
        assert job.goes_on(seconds=1) is None, "told all at once: nothing to form again"
        assert "node-lost" not in job.printed()
        assert "SIGTERM" in job.printed()
        saved = newest_checkpoint(tmp_path)
        assert newest is not None
        assert saved >= newest.step - 1, job.printed()


@pytest.mark.long
def test_draining_a_node_disturbs_nothing(slurm: Slurm, tmp_path: Path) -> None:
    with SlurmJob(slurm, tmp_path) as job:
        job.srun()
        job.wait_for_steps(20)
        job.mark()
        job.scontrol("update", "nodename=n2", "state=drain", "reason=test")
        try:
            # a healthy job steps on: the wait fails with its screen where it does not
            job.wait_for_steps(100)
            newest = job.newest()
            assert newest is not None
            assert newest.attempt == 0
            assert "verdict[" not in job.printed()
            assert "notice[" not in job.printed()
        finally:
            slurm.run(["scancel", job.number()])
            job.exit_code()
            job.scontrol("update", "nodename=n2", "state=resume")


@pytest.mark.long
def test_a_requeued_job_resumes(slurm: Slurm, tmp_path: Path) -> None:
    with SlurmJob(slurm, tmp_path) as job:
        number = job.sbatch()
        job.wait_for(lambda: (newest := job.newest()) is not None and newest.step >= 50)
        job.mark()
        job.scontrol("requeue", number)
        job.wait_for(lambda: (n := job.newest()) is not None and n.at > job.marked + 10)
        first = min(
            (s for steps in job.steps().values() for s in steps if s.at > job.marked + 10),
            key=lambda s: s.at,
        )
        slurm.run(["scancel", number])
        assert first.step >= 40
        assert not job.curve_breaks()
        assert "node-lost" not in job.out()


@pytest.mark.long
def test_the_time_limit_is_named_and_the_last_step_saved(slurm: Slurm, tmp_path: Path) -> None:
    with SlurmJob(slurm, tmp_path) as job:
        job.srun("--time=1")
        job.exit_code(seconds=150)
        last = job.newest()
        assert last is not None
        assert newest_checkpoint(tmp_path) >= last.step - 1, job.printed()
        assert "time limit" in job.printed()
        assert "node-lost" not in job.printed()


def newest_checkpoint(folder: Path) -> int:
    steps = [path.name.rpartition("-")[2] for path in (folder / "ckpts").iterdir()]
    return max(int(step) for step in steps if step.isdigit())
