"""`holdfast run` where ranks meet in several groups or worlds, in sharded groups, or in none.

All rows are `python -m tools.fault_table --only fsdp2 tp×dp worlds again`; here is a sample.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import catalogue
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather
from tests.cli.jobs import Job, ran, script
from tests.places import TARGETS


def blamed(done: Job) -> list[tuple[str, str, list[int]]]:
    """These scripts keep no checkpoint, and are told so after a restart."""
    return [told for told in done.said() if told[1] != "restart-from-zero"]


@pytest.mark.long
def test_a_wrong_size_in_one_of_four_groups_is_blamed_on_the_one_that_issued_it(
    tmp_path: Path,
) -> None:
    """Two ranks of a pair disagree, and Gloo aborts one: only the pair beside it can tell who."""
    arguments = ("--max-restarts", "1", "--nproc-per-node", "4", str(TARGETS / "tp_dp.py"))
    done = ran(tmp_path, *arguments, "22", "size", "2")
    assert done.process.returncode == 0, done.err
    assert blamed(done) == [("verdict", "collective-mismatch", [2])], done.err
    assert done.records("verdict")[0]["victims"] == [0, 1, 3]
    assert done.actions() == ["restart"]


@pytest.mark.long
def test_a_rank_that_sleeps_between_two_shards_is_named(tmp_path: Path) -> None:
    target = str(TARGETS / "fsdp2.py")
    arguments = ("--max-restarts", "1", "--nproc-per-node", "2", "--patience", "3", target)
    done = ran(tmp_path, *arguments, "22", "sleep", "1")
    assert done.process.returncode == 0, done.err
    assert blamed(done) == [("notice", "rank-stuck", [1]), ("verdict", "rank-stuck", [1])]
    reason = done.records("verdict")[0]["reason"]
    assert "breakage.py" in reason
    assert "rank 0 waits for it in all_gather #" in reason


@pytest.mark.long
def test_a_rank_is_named_in_its_own_world_while_the_other_one_trains_on(tmp_path: Path) -> None:
    """Two pairs with stores and models of their own: rank 2 is number 0 of the second."""
    arguments = ("--max-restarts", "0", "--nproc-per-node", "4", "--patience", "3")
    done = ran(tmp_path, *arguments, str(TARGETS / "worlds.py"), "400", "sleep", "2")
    assert done.process.returncode == 124, done.err
    assert done.said() == [("notice", "rank-stuck", [2]), ("verdict", "rank-stuck", [2])]
    verdict = done.records("verdict")[0]
    assert verdict["victims"] == [3]
    assert "rank 3 waits for it in all_reduce #" in verdict["reason"]
    assert " of the world at 127.0.0.1:" in verdict["reason"]
    assert verdict["steps"] > done.records("notice")[0]["steps"] > 20, "the other pair trained on"
    assert "training continues" not in done.err
    # Once it is over, the worlds are still told apart.
    faults = [entry.fault for entry in catalogue.entries()]
    diagnoses = diagnose(gather([str(done.run)]), faults).diagnoses
    assert [(d.slug, d.culprit.rank) for d in diagnoses if d.culprit][:1] == [("rank-stuck", 2)]
    assert "collective-mismatch" not in [d.slug for d in diagnoses]


def test_an_exit_code_is_nobodys_consequence_where_there_is_no_group(tmp_path: Path) -> None:
    """Rank 0 is done; what rank 1 then ends with is its own."""
    text = (
        "import os, pathlib, sys, time\n"
        f"note = pathlib.Path({str(tmp_path / 'left')!r})\n"
        "if os.environ['RANK'] == '0':\n"
        "    note.write_text(f'{os.getpid()} ')\n"
        "    sys.exit(0)\n"
        "def lives():\n"
        "    pid = note.read_text() if note.exists() else ''\n"
        "    stat = pathlib.Path(f'/proc/{pid.strip()}/stat')\n"
        "    return not pid or (stat.exists() and ') Z ' not in stat.read_text())\n"
        "while lives(): time.sleep(0.01)\n"
        "sys.exit(7)\n"
    )
    done = ran(tmp_path, "--nproc-per-node", "2", "--max-restarts", "0", script(tmp_path, text))
    assert done.process.returncode == 7, done.err
    assert done.said() == [("verdict", "python-exception", [1])]
    ends = [(r["rank"], r["code"]) for r in done.records("rank") if r["what"] == "exited"]
    assert ends == [(0, 0), (1, 7)]
