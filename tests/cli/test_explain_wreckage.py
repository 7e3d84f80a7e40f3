"""`holdfast explain` as a user types it: what goes in, what comes out, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest

from holdfast.cli import explain, main, reading
from holdfast.findings import Culprit, Diagnosis, Evidence
from holdfast.view import diagnosis
from tests.cli.holdfast_command import run
from tests.explain.read.test_run_folder import RAISED, full
from tests.run.runs_on_disk import a_run

OOM = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
    "total capacity of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this "
    "process has 77.90 GiB memory in use.\n"
)


def test_a_log_on_stdin_as_text_and_as_json() -> None:
    done = run("explain", input=OOM)
    assert done.returncode == 1
    assert done.stdout.startswith("gpu-oom[HOLD308] rank 1 (certain)\n")
    assert "  --> <stdin>:1: rank 1: " in done.stdout
    assert done.stderr == ""


def test_the_json_has_the_promised_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(OOM)
    assert main.main(["explain", "--json", str(log)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["command"]) == ("holdfast/1", "explain")
    first = document["diagnoses"][0]
    assert (first["grade"], first["confidence"]) == ("certain", 0.95)
    assert {"code", "slug", "culprit", "victims", "evidence", "fix", "ruled_out",
            "unknown"} <= set(first)  # fmt: skip
    assert set(first["culprit"]) == {"rank", "host", "pid", "what", "ranks", "one_of"}
    assert first["evidence"][0]["source"] == str(log)


def test_a_healthy_log_gives_an_empty_list_and_exit_code_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 0.3\nstep 2 loss 0.2\n")
    assert main.main(["explain", "--json", str(log)]) == 0
    assert json.loads(capsys.readouterr().out)["diagnoses"] == []
    assert main.main(["explain", str(log)]) == 0
    assert capsys.readouterr().out.startswith("No trace of a distributed job was found")
    log.write_text("[rank0]: step 1 loss 0.3\n[rank1]: step 1 loss 0.2\n")
    assert main.main(["explain", str(log)]) == 0
    assert capsys.readouterr().out == f"{diagnosis.HEALTHY}\n"


def test_latest_is_the_newest_run_and_no_word_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["explain", "latest"]) == 2
    assert "no runs in runs" in capsys.readouterr().err
    killed = {"kind": "verdict", "slug": "rank-killed", "code": "HOLD701", "ranks": [1]}
    a_run(tmp_path / "runs", killed | {"attempt": 0, "reason": "it was killed"})
    assert main.main(["explain", "latest"]) == 1
    assert capsys.readouterr().out.startswith("rank-killed[HOLD701] rank 1")
    (tmp_path / "latest").write_text("[rank0]: step 1\n")
    assert main.main(["explain", "latest"]) == 0, "a file of that name is that file"


def test_the_folder_of_all_runs_stands_for_the_newest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(("a", "b")):
        folder = full(tmp_path / "runs" / name, RAISED)
        marker = {"run": name, "started": 100.0 - number}
        (folder / "holdfast-run.json").write_text(json.dumps(marker))
    assert main.main(["explain", str(tmp_path / "runs")]) == 1
    told = capsys.readouterr()
    assert told.err == (f"{tmp_path}/runs has 2 runs; explaining the newest, {tmp_path}/runs/a\n")
    assert "runs/a/attempt-0/" in told.out
    assert "runs/b/" not in told.out


@pytest.mark.parametrize("arguments", [["explain"], ["explain", "--json"]])
def test_nothing_at_all_is_bad_usage(arguments: list[str]) -> None:
    done = run(*arguments, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing to explain: give a log, a folder or a fault's name" in done.stderr


def test_a_fault_wins_over_a_file_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "disk-full").write_text(OOM)
    monkeypatch.chdir(tmp_path)
    assert main.main(["explain", "disk-full"]) == 0
    shown = capsys.readouterr()
    assert "HOLD408" in shown.out or "disk-full" in shown.out.splitlines()[0]
    assert shown.err.endswith("holdfast explain ./disk-full\n")
    assert main.main(["explain", "./disk-full"]) == 1
    assert capsys.readouterr().out.startswith("gpu-oom")


@pytest.mark.parametrize(
    ("confidence", "grade"),
    [(1.0, "certain"), (0.81, "certain"), (0.8, "likely"), (0.5, "likely"), (0.49, "possible"),
     (0.3, "possible"), (0.29, "weak"), (0.0, "weak")],
)  # fmt: skip
def test_a_confidence_has_a_grade(confidence: float, grade: str) -> None:
    item = Diagnosis(code="HOLD101", slug="port-in-use", confidence=confidence, culprit=None,
                     reason="so it was")  # fmt: skip
    assert item.grade.value == grade
    assert f"({grade})" in diagnosis.leading(item)
    assert diagnosis.in_short(item).startswith(f"  {grade:<8}  port-in-use[HOLD101]: so it was")


# --- text ---------------------------------------------------------------------------------------


def test_prose_is_wrapped_and_what_is_copied_is_not() -> None:
    command = "ss -ltnp 'sport = :29500' && " + "x" * 120
    item = Diagnosis(
        code="HOLD101",
        slug="port-in-use",
        confidence=0.9,
        culprit=Culprit(what="port 29500"),
        reason="so it was " * 30,
        evidence=(Evidence(quote="y" * 500, source="train.log", line=7),),
        fix="do this " * 30,
        next=command,
    )
    lines = diagnosis.leading(item).splitlines()
    prose = [line for line in lines if "-->" not in line and not line.startswith("next: ")]
    assert max(map(len, prose)) <= diagnosis.WIDTH
    assert lines[-1] == f"next: {command}"
    (quote,) = [line for line in lines if "-->" in line]
    assert quote.startswith("  --> train.log:7: yyy")
    assert quote.endswith("…")


def test_a_hostile_quote_does_not_drive_the_terminal() -> None:
    item = Evidence(quote="\x1b]0;owned\x07\x1b[2J fake\nhelp: rm -rf", source="a\x1b[1m.log")
    assert "\x1b" not in diagnosis.evidence(item)
    assert "\n" not in diagnosis.evidence(item)


def test_many_unread_files_are_counted() -> None:
    text = diagnosis.report((), failed=False, anomalies=(), remarks=[f"{n}: no" for n in range(50)])
    assert text.count("not read: ") == diagnosis.REMARKS + 1
    assert text.endswith("not read: 44 more")


# --- progress -----------------------------------------------------------------------------------


def test_progress_is_shown_only_when_reading_takes_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_bytes(b"x" * 4096)
    now = 0.0
    progress = reading.Progress([str(tmp_path)], clock=lambda: now)
    progress(1024)
    assert capsys.readouterr().err == ""
    now = 2.1
    progress(1024)
    progress(1024)
    now = 4.2
    progress(8192)
    assert capsys.readouterr().err == "read 2 KiB of 4 KiB\nread 11 KiB\n"


def test_progress_of_a_pipe_knows_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = reading.Progress(["-"], clock=lambda: now)
    now = 3.0
    progress(2048)
    assert capsys.readouterr().err == "read 2 KiB\n"


def test_an_empty_or_closed_stdin_is_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for nothing in (None, io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"")))):
        monkeypatch.setattr("sys.stdin", nothing)
        assert not explain._is_piped_to()


def test_where_nothing_can_be_read_nothing_is_called_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "core").write_bytes(bytes(range(256)) * 64)
    assert main.main(["explain", str(tmp_path)]) == 2
    assert "nothing could be read" in capsys.readouterr().err
    (tmp_path / "core").write_bytes(b"")
    assert main.main(["explain", str(tmp_path / "core")]) == 2
    assert "nothing to read: " in capsys.readouterr().err
    (tmp_path / "core").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "job.log").write_text("step 1\n")
    assert main.main(["explain", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Nothing failed in what could be read")
