"""How each launcher is started, and what is heard of it: from its journal, or from its screen."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest

from holdfast.analysis.drill.outcome import Spoken
from holdfast.analysis.job.journal_records import (
    ActionRecord,
    JournalRecord,
    NoticeRecord,
    SavedRecord,
    VerdictRecord,
)
from holdfast.drill.layout import JobFolder
from holdfast.drill.runners import runner, screens
from holdfast.drill.runners.runner import ToStart
from holdfast.errors import ConfigError


def to_start(*options: str) -> ToStart:
    return ToStart(options, ["train.py", "--max-restarts"], Path("/d/runs"), 4.0)


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path / "job").make()


@pytest.mark.parametrize("name", ["holdfast", "torchrun"])
def test_restarts_are_allowed_unless_they_were_typed(name: str) -> None:
    some = runner.by_name(name)
    usual = some.command(to_start("--nproc-per-node", "2"))
    assert usual[usual.index("--max-restarts") + 1] == str(runner.RESTARTS)
    typed = some.command(to_start("--max_restarts=0"))
    assert typed.count("--max-restarts") == 1  # the script's own
    assert "--max_restarts=0" in typed


def test_torchrun_meets_alone_unless_it_was_told_where() -> None:
    torchrun = runner.by_name("torchrun")
    assert "--standalone" in torchrun.command(to_start())
    assert "--standalone" not in torchrun.command(to_start("--master-port=29500"))


def test_an_unknown_runner_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"one of .*holdfast.*torchrun.*got 'mpirun'"):
        runner.by_name("mpirun")


def test_holdfast_is_heard_through_its_journals(folder: JobFolder) -> None:
    blame = {"slug": "rank-killed", "code": "HOLD701", "ranks": [2], "attempt": 0, "steps": 5}
    blame |= {"victims": [], "hosts": ["b"], "reason": "killed", "fix": "", "evidence": "",
              "longest_pause": 0.0}  # fmt: skip
    records = [
        msgspec.convert({"t": 1.0, **blame, "kind": "notice"}, NoticeRecord),
        msgspec.convert({"t": 2.0, **blame, "stopped_by": "", "kind": "verdict"}, VerdictRecord),
        ActionRecord(t=3.0, attempt=0, steps=5, action="restart", idle=1.0, reason="why"),
        saved(4.0, told_at=3.5, step=10),
    ]
    run = folder.runs / "alpha" / "261116-x"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, records)) + b"\n{to")
    (run.parent / "latest").symlink_to(run.name)
    shown = (
        "holdfast> notice[HOLD701] waiting: rank 2\nholdfast> error[HOLD205] peer-unreachable: b\n"
    )
    screens.keep(io.StringIO(shown), folder.screen("alpha")).join()
    heard = runner.by_name("holdfast").heard(folder)
    expected = Spoken(t=1.0, kind="notice", slug="rank-killed", ranks=(2,), hosts=("b",),
                      reason="killed")  # fmt: skip
    assert heard.spoken[:2] == (expected, msgspec.structs.replace(expected, t=2.0, kind="verdict"))
    assert [one.slug for one in heard.spoken[2:]] == ["peer-unreachable"]  # not in the journal
    assert [one.what for one in heard.happened] == ["restart: why"]
    assert heard.saved == ((3.5, 10, "ckpts/step-10"),)


def saved(t: float, *, told_at: float, step: int) -> JournalRecord:
    return SavedRecord(
        t=t, attempt=0, rank=0, told_at=told_at, step=step, path=f"ckpts/step-{step}", bytes=1,
        stall=0.0, seconds=0.1,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["torchrun", "accelerate", "ft_launcher"])
def test_others_are_heard_through_their_screens(name: str, folder: JobFolder) -> None:
    printed = "step 1\nE1116 failed (exitcode: -9) local_rank: 2 (pid: 4711) of binary: python\n"
    screens.keep(io.StringIO(printed), folder.screen("")).join()
    (spoken,) = runner.by_name(name).heard(folder).spoken
    assert (spoken.kind, spoken.slug, spoken.ranks) == ("line", "", (2,))
    assert spoken.t > 1e9


def test_accelerate_has_names_of_its_own() -> None:
    accelerate = runner.by_name("accelerate")
    words = accelerate.command(to_start("--standalone", "--nproc-per-node=4", "--master-port", "1"))
    launch = words.index("launch")
    assert words[launch + 1 :] == [
        "--multi_gpu", "--max_restarts", "3", "--num_processes", "4", "--main_process_port", "1",
        "train.py", "--max-restarts",
    ]  # fmt: skip
    assert "--module" in accelerate.command(to_start("-m"))
    with pytest.raises(ConfigError, match="no counterpart of --nnodes 2"):
        accelerate.command(to_start("--nnodes", "2"))


def test_ft_launcher_keeps_its_defaults_unless_they_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ft_launcher"
    program.touch(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    ft_launcher = runner.by_name("ft_launcher")
    words = ft_launcher.command(to_start("--nproc-per-node", "2"))
    assert words[0] == str(program)
    assert "--ignore-missing-fault-tol-cfg" in words
    typed = ft_launcher.command(to_start("--ft-rank-heartbeat-timeout=5"))
    assert "--ignore-missing-fault-tol-cfg" not in typed


@pytest.mark.parametrize(
    ("name", "package"), [("accelerate", "accelerate"), ("ft_launcher", "nvidia-resiliency-ext")]
)
def test_what_is_not_installed_is_said_with_how_to_install_it(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("holdfast.drill.runners.accelerate.find_spec", lambda _: None)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(ConfigError, match=f"{name} is not installed") as problem:
        runner.by_name(name).command(to_start())
    assert problem.value.hint == f"pip install {package}"
