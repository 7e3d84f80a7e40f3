"""The archive of a run: complete, capped, and without anything that is nobody's business."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.run.runs import bundle
from holdfast.run.runs.folder import make
from tests.system.sockets import run_python

SECRETS = ("hunter2hunter2", "sk-abcdefghijklmnopqrstuvwx", "MIIEsecretkeybody", "bare-value-77")
LOG = (
    "step 1 loss 0.5 caf\xe9\n"
    f"login password={SECRETS[0]} done\n"
    f"using {SECRETS[1]}\n"
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRETS[2]}\n-----END RSA PRIVATE KEY-----\n"
    f"my value is {SECRETS[3]}\n"
)
SHELL = {"MY_API_TOKEN": SECRETS[3], "PWD": "/home/somebody", "SHORT_KEY": "1"}


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    made = make(str(tmp_path / "runs"), "train.py", ["train.py"], {"HF_TOKEN": SECRETS[0]}).paths
    assert made
    for rank in (0, 1):
        Path(made.rank(0, rank)).mkdir(parents=True)
    Path(made.stdout(0, 0)).write_bytes(LOG.encode("latin-1"))
    Path(made.last_words(0, 1)).write_text(
        json.dumps({"text": f"bad token: {SECRETS[1]}", "HF_TOKEN": "x y z", "line": 3}, indent=1)
    )
    Path(made.journal).write_text('{"t": 1, "kind": "launch"}\n{"t": 2, "kind": "e')
    return made


def packed(paths: RunPaths, target: Path) -> dict[str, bytes]:
    bundle.write(paths, str(target), environment=SHELL)
    with tarfile.open(target) as archive:
        members = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        assert all(members.values()), "plain files only"
        return {
            name.removeprefix(f"{paths.run_id}/"): file.read()
            for name, file in members.items()
            if file
        }


def test_no_secret_goes_into_it_and_the_rest_does(paths: RunPaths, tmp_path: Path) -> None:
    files = packed(paths, tmp_path / "b.tar.gz")
    everything = b"".join(files.values())
    for secret in SECRETS:
        assert secret.encode() not in everything
    log = files["attempt-0/rank-0/stdout.log"].decode("latin-1")
    assert log == (
        "step 1 loss 0.5 caf\xe9\nlogin password=<redacted> done\nusing <redacted>\n<redacted>\n"
        "my value is <redacted>\n"
    )
    assert json.loads(files["attempt-0/rank-1/last_words.json"]) == {
        "text": "bad token: <redacted>", "HF_TOKEN": "<redacted>", "line": 3,
    }  # fmt: skip
    assert json.loads(files["settings.json"])["environment"] == {"HF_TOKEN": "<redacted>"}
    assert files["journal.jsonl"].startswith(b'{"t":1,"kind":"launch"}\n')
    assert files["BUNDLE.txt"] == b"nothing was cut or left out\n"


def test_secrets_of_the_run_are_struck_out_from_any_shell(tmp_path: Path) -> None:
    value = "correct-horse-battery"
    environment = {"MLFLOW_TRACKING_PASSWORD": value, "SLACK_WEBHOOK": "T000/B000/XXXX"}
    paths = make(str(tmp_path / "runs"), "train.py", ["train.py"], environment).paths
    assert paths
    Path(paths.rank(0, 0)).mkdir(parents=True)
    Path(paths.stdout(0, 0)).write_text(f"logged in with {value}\nposts to T000/B000/XXXX\n")
    files = packed(paths, tmp_path / "b.tar.gz")  # SHELL has neither variable
    assert files["attempt-0/rank-0/stdout.log"] == (
        b"logged in with <redacted>\nposts to <redacted>\n"
    )
    assert value.encode() not in b"".join(files.values())
    assert "secret-values.json" not in files


def test_links_pipes_and_foreign_files_stay_out(paths: RunPaths, tmp_path: Path) -> None:
    os.symlink("/etc/passwd", paths.stderr(0, 0))
    os.symlink("/etc", os.path.join(paths.attempt(0), "evidence-0"))
    os.symlink("/etc", paths.attempt(7))
    os.mkfifo(paths.error(0, 0))
    Path(paths.folder, "ckpt").mkdir()
    Path(paths.folder, "ckpt", "model.pt").write_bytes(b"weights")
    Path(paths.folder, "notes.txt").write_text("mine")
    files = packed(paths, tmp_path / "b.tar.gz")
    assert set(files) == {
        "BUNDLE.txt", "holdfast-run.json", "journal.jsonl", "launcher.json", "settings.json",
        "attempt-0/rank-0/stdout.log", "attempt-0/rank-1/last_words.json",
    }  # fmt: skip
    assert files["BUNDLE.txt"].decode().splitlines() == [
        "attempt-7: left out, a link",
        "ckpt: left out, not written by holdfast",
        "notes.txt: left out, not written by holdfast",
        "attempt-0/evidence-0: left out, a link",
        "attempt-0/rank-0/error.json: left out, not a plain file",
        "attempt-0/rank-0/stderr.log: left out, a link",
    ]


def test_the_same_run_gives_the_same_archive(paths: RunPaths, tmp_path: Path) -> None:
    names = [tmp_path / "one.tar.gz", tmp_path / "two.tar.gz"]
    for name in names:
        bundle.write(paths, str(name), environment={})
    assert names[0].read_bytes() == names[1].read_bytes()
    assert names[0].stat().st_mode & 0o077 == 0
    with tarfile.open(names[0]) as archive:
        members = archive.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}


def test_nothing_is_overwritten_nor_written_through_a_link(paths: RunPaths, tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    target.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="already exists"):
        bundle.write(paths, str(target), environment={})
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(EnvironmentFailure, match="No such file"):
        bundle.write(paths, str(tmp_path / "no" / "b.tar.gz"), environment={})


WITH_LITTLE_ROOM = """
import os, resource, sys
from holdfast.errors import EnvironmentFailure
from holdfast.run.runs import bundle
from holdfast.analysis.job.run_paths import RunPaths
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
try:
    bundle.write(RunPaths(*sys.argv[1:3]), sys.argv[3], environment={})
except EnvironmentFailure as problem:
    print(problem, os.path.exists(sys.argv[3]))
"""


def test_no_half_archive_is_left(paths: RunPaths, tmp_path: Path) -> None:
    target = str(tmp_path / "b.tar.gz")
    said = run_python(WITH_LITTLE_ROOM, paths.root, paths.run_id, target)
    assert said == f"{target}: File too large False\n"


def test_large_files_keep_their_beginning_and_their_end(
    paths: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "LARGEST_FILE", 4000)
    lines = [f"line {number} token={SECRETS[0]}" for number in range(1000)]
    Path(paths.stdout(0, 0)).write_text("\n".join(lines))
    files = packed(paths, tmp_path / "b.tar.gz")
    log = files["attempt-0/rank-0/stdout.log"].decode().splitlines()
    assert log[0] == "line 0 token=<redacted>"
    assert log[-1] == "line 999 token=<redacted>"
    assert sum("left out here]" in line for line in log) == 1
    assert len("\n".join(log)) < 4200
    assert SECRETS[0][:8] not in "".join(log)
    assert b"stdout.log: " in files["BUNDLE.txt"]
    monkeypatch.setattr(bundle, "LARGEST_BUNDLE", 1500)
    small = packed(paths, tmp_path / "small.tar.gz")
    assert "attempt-0/rank-0/stdout.log" not in small
    assert b"the bundle holds 1.46 KiB at most" in small["BUNDLE.txt"]
