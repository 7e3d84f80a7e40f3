"""A run's folder: made anywhere it can be, without secrets, pruned without regret."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.runs import folder, redact
from holdfast.run.runs.folder import KEEP_DAYS, KEEP_RUNS, CreatedRun, make, prune, save
from tests.cli.holdfast_command import in_a_namespace
from tests.frozen_disk import disk
from tests.run.runs_on_disk import a_run, living_run, make_older

COMMAND = ["holdfast", "run", "train.py", "--hf-token", "abc def", "--lr", "3"]
END = {"kind": "end", "exit_code": 0}


def made(root: Path, name: str = "train.py", environment: dict[str, str] | None = None) -> RunPaths:
    answer = make(str(root), name, COMMAND, environment or {})
    assert answer.remark == ""
    assert answer.paths
    return answer.paths


@pytest.mark.lab
def test_a_disk_that_hangs_at_the_start_costs_seconds_and_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "ANSWER_WITHIN", 0.5)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with disk(tmp_path) as frozen:
        frozen.freeze()
        answer = make(str(frozen.folder / "runs"), "train.py", COMMAND, {})
        assert "(no answer within 0.5 s); this run is kept in" in answer.remark
        assert answer.paths
        assert os.path.isdir(answer.paths.folder)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("/home/me/Train Model.py", "train-model"),
        ("../..", "run"),
        ("\udce9\n\x1b[2J", "2j"),
        ("-m", "m"),
        ("x" * 300 + ".py", "x" * 20),
        ("", "run"),
    ],
)
def test_an_id_is_short_and_harmless(tmp_path: Path, name: str, word: str) -> None:
    paths = made(tmp_path, name)
    assert re.fullmatch(rf"\d{{6}}-\d{{6}}-{word}-[0-9a-f]{{4}}", paths.run_id)
    assert set(os.listdir(tmp_path)) == {paths.run_id, "latest"}


def test_the_names_hold_wherever_a_rank_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert made(Path("runs")).root == str(tmp_path / "runs")


def test_latest_leads_to_the_newest_but_never_replaces_a_file(tmp_path: Path) -> None:
    made(tmp_path)
    newest = made(tmp_path)
    assert os.readlink(newest.latest) == newest.run_id
    os.unlink(newest.latest)
    Path(newest.latest).write_text("mine")
    made(tmp_path)
    assert Path(newest.latest).read_text() == "mine"


def test_settings_tell_what_was_run_but_no_secret(tmp_path: Path) -> None:
    environment = {
        "PATH": "/bin",
        "PWD": "/home/me",
        "HF_TOKEN": "a b c",
        "WANDB_API_KEY": "k",
        "MY_SSH_KEY": "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n",
        "GITHUB_PAT": "p",
        "DATABASE": "postgres://me:secret@db/x",
        "NOTE": "uses sk-abcdefghijklmnopqrstuvwx",
        "TORCH_LOGS": "postgres://me:secret@db/x",
        "NCCL_DSN": "k",
        "SLURM_CERT": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- x",
        "LC_ODD": "caf\udce9",
        "LD_LONG": "x" * 100_000,
    }
    paths = made(tmp_path, environment=environment)
    settings = json.loads(Path(paths.settings).read_bytes())
    assert settings["command"] == [*COMMAND[:4], "<redacted>", "--lr", "3"]
    assert {"holdfast", "python", "torch"} <= set(settings["versions"])
    seen = settings["environment"]
    assert len(seen.pop("LD_LONG")) == redact.LONGEST_VALUE
    unknown = dict.fromkeys(("DATABASE", "NOTE"), "<not recorded>")
    hidden = dict.fromkeys(("HF_TOKEN", "WANDB_API_KEY", "MY_SSH_KEY", "GITHUB_PAT"), "<redacted>")
    assert seen == {
        "PATH": "/bin", "PWD": "/home/me", **hidden, **unknown,
        "NCCL_DSN": "<redacted>", "TORCH_LOGS": "postgres://<redacted>@db/x", "LC_ODD": "caf�",
        "SLURM_CERT": "<redacted> x",
    }  # fmt: skip
    assert os.stat(paths.settings).st_mode & 0o077 == 0


def test_other_users_may_not_read_a_run(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        paths = made(tmp_path, environment={"HF_TOKEN": "a long value"})
    finally:
        os.umask(before)
    assert os.stat(paths.folder).st_mode & 0o777 == 0o700
    assert os.stat(paths.secret_values).st_mode & 0o777 == 0o600
    assert json.loads(Path(paths.secret_values).read_bytes()) == ["a long value"]


def test_torch_is_not_imported_for_its_version(tmp_path: Path) -> None:
    code = (
        "import sys; from holdfast.run.runs import folder, registry, bundle\n"
        "folder.make(sys.argv[1], 'a', [], {}); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_where_runs_cannot_be_a_temporary_folder_is(tmp_path: Path) -> None:
    blocked = tmp_path / "runs"
    blocked.write_text("a file")
    answer = make(str(blocked), "train.py", COMMAND, {})
    try:
        assert answer.paths
        assert answer.paths.folder.startswith(tempfile.gettempdir())
        assert f"this run is kept in {answer.paths.folder}" in answer.remark
        assert f"cannot write {blocked} (" in answer.remark
    finally:
        if answer.paths:
            subprocess.run(["rm", "-r", answer.paths.root], check=True)


def test_where_nothing_can_be_written_the_screen_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    answer = make(str(tmp_path / "runs"), "train.py", COMMAND, {})
    assert answer == CreatedRun(None, answer.remark)
    assert "nothing of this run is kept but what is on the screen" in answer.remark


ON_A_FULL_DISK = """
import os, sys
from holdfast.run.runs import folder
root = sys.argv[1] + "/runs"
os.mkdir(root)
with open(sys.argv[1] + "/ballast", "wb", buffering=0) as ballast:
    try:
        while ballast.write(b"x" * 4096): pass
    except OSError: pass
answer = folder.make(root, "train.py", [], {})
print(answer.remark.count("No space left on device"), os.listdir(root))
print(folder.save(root + "/x/facts.json", {"a": 1}))
if answer.paths:
    import shutil
    shutil.rmtree(answer.paths.root)
"""


@pytest.mark.lab
def test_a_full_disk_leaves_no_half_made_folder(tmp_path: Path) -> None:
    setup = f"mount -t tmpfs -o size=64k tmpfs '{tmp_path}'"
    done = subprocess.run(
        [*in_a_namespace("mount", setup=setup), sys.executable, "-c", ON_A_FULL_DISK,
         str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == "1 []", done.stderr
    assert second.endswith("No space left on device")


def test_save_makes_the_folder_and_overwrites_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b.json")
    assert save(path, {"path": "caf\udce9"}) == ""
    assert "File exists" in save(path, {})
    assert json.loads(Path(path).read_bytes()) == {"path": "caf�"}
    assert save(str(tmp_path / "a" / "missing.txt"), "rank 3: gone\n") == ""
    assert (tmp_path / "a" / "missing.txt").read_text() == "rank 3: gone\n"


def old_runs(root: Path, count: int, now: float) -> list[RunPaths]:
    runs = [a_run(root, END) for _ in range(count)]
    for age, paths in enumerate(runs):
        make_older(paths, days=KEEP_DAYS + 1 + age, now=now)
    return runs


def test_pruning_takes_old_runs_beyond_the_newest(tmp_path: Path) -> None:
    now = time.time()
    runs = old_runs(tmp_path, KEEP_RUNS + 3, now)
    assert sorted(prune(str(tmp_path), now=now)) == sorted(p.run_id for p in runs[KEEP_RUNS:])
    assert all(os.path.exists(paths.journal) for paths in runs[:KEEP_RUNS])
    assert not any(os.path.exists(paths.folder) for paths in runs[KEEP_RUNS:])
    assert prune(str(tmp_path), now=now) == []


def test_pruning_never_takes_what_lives_is_young_or_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "KEEP_RUNS", 0)
    now = time.time()
    with living_run(tmp_path) as (living, _):
        make_older(RunPaths(str(tmp_path), living), days=100, now=now)
        (young,) = old_runs(tmp_path, 1, now)
        Path(young.stdout(0, 0)).parent.mkdir(parents=True)
        Path(young.stdout(0, 0)).write_text("still training\n")  # only a log is young
        elsewhere = a_run(tmp_path, host="other-machine", boot_id="other")
        make_older(elsewhere, days=100, now=now)
        (used,) = old_runs(tmp_path, 1, now)
        Path(used.folder, "ckpt").mkdir()
        make_older(used, days=100, now=now)
        (copied,) = old_runs(tmp_path, 1, now)
        copied_to = tmp_path / "the-good-one"
        os.rename(copied.folder, copied_to)
        (tmp_path / "notes").mkdir()
        (gone,) = old_runs(tmp_path, 1, now)
        (tmp_path / "link").symlink_to(gone.run_id)
        lost = a_run(tmp_path)
        make_older(lost, days=100, now=now)
        assert sorted(prune(str(tmp_path), now=now)) == sorted([gone.run_id, lost.run_id])
    kept = set(os.listdir(tmp_path))
    assert {living, young.run_id, elsewhere.run_id, used.run_id, "the-good-one", "notes"} <= kept
    assert kept.isdisjoint({gone.run_id, lost.run_id})


def test_pruning_counts_runs_and_not_the_folders_of_their_nodes(tmp_path: Path) -> None:
    now = time.time()
    runs = []
    for number in range(21):
        first = a_run(tmp_path, part=folder.RunPart("a", coordinates=True))
        second = a_run(tmp_path, part=folder.RunPart("b", first.run_id))
        for one in (first, second):
            make_older(one, days=30 - number, now=now)
        runs.append((first, second))
    assert set(folder.prune(str(tmp_path), now=now)) == {one.run_id for one in runs[0]}
