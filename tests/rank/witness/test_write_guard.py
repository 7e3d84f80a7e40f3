"""What a drilled script may write, and that nothing else is changed by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.rank.witness import delivery, write_guard

PROGRAM = """
import contextlib, multiprocessing, os, shutil, sqlite3, subprocess, sys, tempfile
own, foreign, cache = sys.argv[1:]
os.chdir(own)
from pathlib import Path

def attempts(outside):
    return {
        "open": lambda: open(f"{outside}/kept", "w"),
        "append": lambda: open(f"{outside}/kept", "a"),
        "write bytes": lambda: Path(outside, "new").write_bytes(b"x"),
        "os.open": lambda: os.open(f"{outside}/new", os.O_RDWR | os.O_CREAT),
        "rename away": lambda: os.rename(f"{outside}/kept", "mine"),
        "rename into": lambda: os.replace("mine", f"{outside}/kept"),
        "remove": lambda: os.remove(f"{outside}/kept"),
        "rmtree": lambda: shutil.rmtree(f"{outside}/folder"),
        "rmtree itself": lambda: shutil.rmtree(outside),
        "rmdir": lambda: os.rmdir(f"{outside}/empty"),
        "mkdir": lambda: os.makedirs(f"{outside}/a/b"),
        "link": lambda: os.link("mine", f"{outside}/linked"),
        "symlink": lambda: os.symlink("mine", f"{outside}/linked"),
        "truncate": lambda: os.truncate(f"{outside}/kept", 0),
        "chmod": lambda: os.chmod(f"{outside}/kept", 0),
        "touch": lambda: os.utime(f"{outside}/kept"),
        "attribute": lambda: os.setxattr(f"{outside}/kept", "user.x", b""),
        "copy": lambda: shutil.copy("mine", f"{outside}/kept"),
        "database": lambda: sqlite3.connect(f"{outside}/kept"),
        "named file": lambda: tempfile.NamedTemporaryFile(dir=outside),
    }

Path("mine").write_text("mine")
for outside in (foreign, "linked-folder"):
    for name, attempt in attempts(outside).items():
        try:
            attempt()
            print("NOT REFUSED", outside, name)
        except PermissionError as problem:
            assert "--writes-to DIR" in str(problem), problem
with contextlib.suppress(PermissionError):
    Path("linked-file").write_text("changed")
    print("NOT REFUSED linked-file")

def in_a_child():
    with contextlib.suppress(PermissionError):
        Path(foreign, "child").touch()
        print("NOT REFUSED child")

child = multiprocessing.get_context("fork").Process(target=in_a_child)
child.start(), child.join()
with contextlib.suppress(OSError):
    subprocess.run([sys.executable, "-c", f"open({foreign + '/sub'!r}, 'w')"], stderr=-3)

os.remove("linked-file")
os.rename("mine", "renamed"), os.remove("renamed")
os.makedirs("deep/er"), shutil.rmtree("deep")
with tempfile.TemporaryDirectory() as made:
    Path(made, "x").touch()
os.makedirs(f"{cache}/torch/hub")
open("/dev/null", "w").close(), open("/dev/shm/holdfast-test-guard", "w").close()
os.remove("/dev/shm/holdfast-test-guard")
with open("by-descriptor", "w") as file:
    open(file.fileno(), "w", closefd=False).close()
sqlite3.connect(":memory:")
here = os.open(".", os.O_RDONLY)
os.mkdir("below", dir_fd=here), os.rmdir("below", dir_fd=here)
multiprocessing.get_context("spawn").Queue()
print("done")
"""


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_everything_outside_stays_as_it_is(tmp_path: Path) -> None:
    job, foreign, cache = (tmp_path / name for name in ("job", "foreign", "cache"))
    for folder in (job / "work", job / "tmp", job / "witness", foreign / "folder/in"):
        folder.mkdir(parents=True)
    (foreign / "empty").mkdir()
    (foreign / "kept").write_text("kept")
    (job / "work" / "linked-folder").symlink_to(foreign)
    (job / "work" / "linked-file").symlink_to(foreign / "kept")
    before = tree(foreign)
    outer = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "TMPDIR": str(job / "tmp")}
    outer["XDG_CACHE_HOME"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(job / "work"), str(foreign), str(cache)],
        env=delivery.environment(job / "witness", outer),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stdout + done.stderr
    assert tree(foreign) == before
    (record,) = (job / "witness").glob("rank-0.attempt-0.*.jsonl")
    refused = record.read_text()
    assert refused.count('"refused"') == 2 * 20 + 4  # Path.touch tries two ways
    assert str(foreign / "child") in refused
    assert str(foreign / "sub") in refused


def test_folders_are_allowed_as_they_are_and_not_by_how_they_begin(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "job").symlink_to("real")
    environment = {
        delivery.FOLDER: str(tmp_path / "job" / "witness"),
        delivery.WRITES: f"{tmp_path}/a:{tmp_path}/b",
        "TMPDIR": "/scratch/tmp",
    }
    environment["HOLDFAST_WORDS"] = "/local/rank-0/words.json"
    local = "/local/holdfast-77-ab_c"
    environment["TORCHELASTIC_ERROR_FILE"] = f"{local}/attempt-0/rank-1/error.json"
    folders = write_guard.allowed_folders(environment, "/home/me")
    expected = {"real": True, "real/x": True, "job/x": True, "a": True, "b/c/d": True}
    expected |= {"realistic/x": False, "": False, "ab": False, "real/../other": False}
    for name, allowed in expected.items():
        assert write_guard.is_allowed(str(tmp_path / name), folders, follow=True) == allowed, name
    for path, allowed in {
        "/scratch/tmp/x": True,
        "/scratch": False,
        "/home/me/.cache/x": True,
        "/home/me/x": False,
        "/proc/self/fd/1": True,
        "/opt/lib/__pycache__/a.pyc": True,
        "/opt/lib/__pycache__": True,
        "/opt/lib/a.pyc": False,
        "/local/rank-0/words.json.crash": True,
        "/local/x": False,
        f"{local}/1.sock": True,
        "/local/holdfast-78-ab_c/1.sock": False,
    }.items():
        assert write_guard.is_allowed(path, folders, follow=True) == allowed, path


@pytest.mark.parametrize("marker", ["RANK", "HOLDFAST_DRILL_RANK"])
def test_only_ranks_and_their_children_are_guarded(tmp_path: Path, marker: str) -> None:
    (tmp_path / "job/witness").mkdir(parents=True)
    target = tmp_path / "outside"
    command = [sys.executable, "-c", f"open({str(target)!r}, 'w')"]
    made = delivery.environment(tmp_path / "job/witness", os.environ)
    told = {"RANK": "0", "HOLDFAST_DRILL_RANK": "rank-0.attempt-0.1.jsonl"}[marker]
    guarded = subprocess.run(command, env={**made, marker: told}, stderr=-3, check=False)
    assert guarded.returncode == 1
    assert not target.exists()
    assert subprocess.run(command, env=made, check=False).returncode == 0
    assert target.exists()
