"""A job is killed once: does `run` see whether the next attempt went on, or began again?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.jobs import Job, ran
from tests.places import TARGETS

RESTARTED = str(TARGETS / "restarted.py")


def killed_once(folder: Path, how: str) -> Job:
    done = ran(folder, "--nproc-per-node", "2", "--max-restarts", "1", RESTARTED, how)
    assert done.process.returncode == 0, done.err
    assert done.actions() == ["restart"], done.err
    return done


def noticed(done: Job) -> list[str]:
    return [slug for kind, slug, _ in done.said() if kind == "notice" and slug != "slow-rank"]


@pytest.mark.long
def test_a_script_that_loads_nothing_began_again(tmp_path: Path) -> None:
    done = killed_once(tmp_path, "not")
    assert "restart-from-zero" in noticed(done), done.err
    assert "the job restarted from step 0: its parameters equal those" in done.err
    assert "17 steps are repeated" in done.err
    assert "restart 1: 17 of 17 steps done again" in done.err


@pytest.mark.long
def test_a_script_with_code_of_its_own_goes_on(tmp_path: Path) -> None:
    done = killed_once(tmp_path, "torch")
    assert "restart-from-zero" not in noticed(done)
    assert "its optimizer had counted 10 steps; the job had reached step 17: 7 steps" in done.err
    first, second = done.records("first-step")
    assert (first["optimizer_step"], first["loaded"]) == (0, False)
    assert (second["guess"], second["optimizer_step"], second["repeated"]) == ("resumed", 10, 7)


def test_with_our_library_it_is_known_exactly(tmp_path: Path) -> None:
    done = killed_once(tmp_path, "holdfast")
    assert "restart-from-zero" not in noticed(done)
    fresh, again = done.records("resume")
    assert (fresh["step"], fresh["attempt"], fresh["path"]) == (0, 0, "")
    # One is due every five steps; on a busy machine it waits until the one before is written.
    assert 5 <= again["step"] < 17
    assert (again["reached"], again["repeated"]) == (17, 17 - again["step"])
    sentence = f"rank 0 resumed at step {again['step']} from {again['path']}; the job had reached"
    assert sentence in done.err
    said = f"resumed at step {again['step']} from "
    assert done.err.count(said) == 1, "by the launcher, not by the rank as well"
    saved = done.records("saved")
    assert saved[-1]["step"] > again["step"]
    assert f"the last at step {saved[-1]['step']} in" in done.err


EMPTIED = """
import os, shutil, sys
import holdfast
holdfast.init()
folder, attempt = sys.argv[1], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
state = holdfast.State(note=1)
with holdfast.Checkpoint(folder, state, every="1h") as ckpt:
    print(f"attempt {attempt} starts at {ckpt.resume()}", flush=True)
    for _ in range(3):
        ckpt.step()
    ckpt.save()
shutil.rmtree(folder)  # as a disk that is not mounted any more
sys.exit(1)
"""


@pytest.mark.long
def test_a_folder_that_is_empty_after_a_save_is_not_a_new_run(tmp_path: Path) -> None:
    script = tmp_path / "emptied.py"
    script.write_text(EMPTIED)
    saved = tmp_path / "saved"
    done = ran(tmp_path, "--nproc-per-node", "1", "--max-restarts", "1", str(script), str(saved))
    assert done.process.returncode != 0
    assert b"attempt 0 starts at 0" in done.out
    assert b"attempt 1 starts" not in done.out
    assert f"an earlier attempt of this run saved {saved}/step-000000003" in done.err
    assert "is its disk mounted?" in done.err
