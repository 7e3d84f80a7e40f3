"""`holdfast runs`, `stop` and `bundle`, as a user types them."""

from __future__ import annotations

import json
import signal
import tarfile
from pathlib import Path

from tests.cli.holdfast_command import run
from tests.run.runs_on_disk import a_run, living_run


def test_runs_lists_what_lives_and_what_ended(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    failed = a_run(
        root,
        {"kind": "launch", "world": 4},
        {"kind": "end", "exit_code": 137, "steps": 1200, "reason": "rank 2 \x1b[2Jwas killed"},
    )
    lost = a_run(root)
    with living_run(root) as (living, _):
        done = run("runs", cwd=tmp_path)
        document = json.loads(run("runs", "--json", cwd=tmp_path).stdout)
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["RUN", "STATE", "STARTED", "RANKS", "STEPS", "RESTARTS"]
    assert [row.split()[0] for row in rows] == [living, lost.run_id, failed.run_id, "rank"]
    assert rows[0].split()[1] == "running"
    assert rows[2].split()[1:3] == ["exit", "137"]
    assert rows[2].split()[-3:] == ["4", "1200", "0"]
    assert rows[3] == "    rank 2 �[2Jwas killed"
    assert document["schema"] == "holdfast/1"
    assert document["command"] == "runs"
    assert [item["state"] for item in document["runs"]] == ["running", "lost", "ended"]
    assert [item["shown"] for item in document["runs"]] == ["running", "lost", "exit 137"]
    stopped = run("stop", lost.run_id, cwd=tmp_path)
    assert stopped.returncode == 1, "nothing was ended"
    assert f"nothing was stopped: {lost.run_id} is lost" in stopped.stdout
    assert {"id", "state", "started", "world", "steps", "restarts", "said"} <= set(
        document["runs"][0]
    )


def test_no_runs_is_a_sentence_and_no_error(tmp_path: Path) -> None:
    done = run("runs", "--runs", "elsewhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no runs in elsewhere\n"
    assert json.loads(run("runs", "--json", cwd=tmp_path).stdout)["runs"] == []


def test_stop_ends_the_run_that_was_named(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with living_run(root) as (first, one), living_run(root) as (_, other):
        done = run("stop", first, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{first} stopped\n")
        assert one.wait(10) == -signal.SIGTERM
        assert other.poll() is None
    done = run("stop", "nothing", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: no run 'nothing' in runs\nhint: list them: `holdfast runs`\n"


def test_bundle_makes_one_archive_and_never_overwrites(tmp_path: Path) -> None:
    paths = a_run(tmp_path / "runs", {"kind": "end", "exit_code": 0})
    done = run("bundle", "latest", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{paths.run_id}.tar.gz\n")
    with tarfile.open(tmp_path / f"{paths.run_id}.tar.gz") as archive:
        assert f"{paths.run_id}/journal.jsonl" in archive.getnames()
    again = run("bundle", paths.run_id, cwd=tmp_path)
    assert again.returncode == 2
    assert "already exists" in again.stderr
    named = run("bundle", paths.run_id, "-o", "b.tar.gz", "--json", cwd=tmp_path)
    assert json.loads(named.stdout)["path"] == "b.tar.gz"
    assert (tmp_path / "b.tar.gz").exists()
