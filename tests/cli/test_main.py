"""The command line: exit codes, one-sentence errors, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import __version__, catalogue
from holdfast.cli.main import main
from tests.cli.holdfast_command import HOLDFAST, free_port, listener, run


def test_version_and_help() -> None:
    assert run("--version").stdout == f"holdfast {__version__}\n"
    done = run("--help")
    assert done.returncode == 0
    assert "check" in done.stdout


@pytest.mark.parametrize("verb", ["run", "check", "drill", "env"])
def test_another_system_is_one_sentence(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main([verb, "train.py"]) == 2
    said = capsys.readouterr().err
    assert f"error: holdfast {verb} needs Linux, and this is darwin\n" in said
    assert "hint: use it where the job runs" in said


def test_files_are_read_on_any_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["explain", "HOLD101"]) == 0


def test_holdfast_alone_prints_its_help() -> None:
    done = run()
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == run("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["check", "--port", "99999"], "error: --port must be from 0 to 65535, got 99999"),
        (["check", "--nnodes", "4:2"], "with 1 <= MIN <= MAX, got '4:2'"),
        (["check", "--only", "prot"], "error: no fault is called 'prot'"),
        (["explain"], "error: nothing to explain: give a log"),
        (["explain", "xyzzy"], "error: no fault's page mentions 'xyzzy'"),
        (["explain", "no/such.log"], "error: there is no file or folder 'no/such.log'"),
        (["explain", "--pid", "4194305"], "error: there is no process 4194305"),
        (["explain", "--run", "xyzzy", "--runs", "no-such"], "error: no runs in no-such"),
        (["check", "--port", "many"], "invalid int value: 'many'"),
        (["check", "--deadline", "0"], "--deadline: must be > 0 and <= 3600 seconds, got '0'"),
        (["chekc"], "invalid choice: 'chekc'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    done = run(*arguments, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_current_folder_that_was_removed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("all is well\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["explain", str(tmp_path / "log")]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error: the current folder has been removed"


def test_exit_code_follows_fail_on() -> None:
    port = free_port()
    with listener(port):
        arguments = ("check", "--port", str(port), "--only", "port-in-use")
        assert run(*arguments).returncode == 1
        assert run(*arguments, "--fail-on", "error").returncode == 1
        assert run(*arguments, "--fail-on", "never").returncode == 0
    assert run(*arguments).returncode == 0


def test_data_on_stdout_narration_on_stderr() -> None:
    port = free_port()
    with listener(port):
        done = run("check", "--port", str(port), "--only", "port-in-use")
    assert f"error[HOLD101] port-in-use: port {port} is taken" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("0 passed, 1 error in ")
    assert done.stderr == "hint: `holdfast explain HOLD101` says more\n"
    assert "\033" not in done.stdout


def test_the_json_of_check_has_the_promised_shape() -> None:
    document = json.loads(run("check", "--json").stdout)
    assert set(document) == {"schema", "command", "findings", "counts", "seconds"}
    assert len(document["findings"]) == sum(document["counts"].values())
    assert {f["slug"] for f in document["findings"]} == {
        entry.fault.slug for entry in catalogue.entries() if entry.fault.check_faces
    }
    for finding in document["findings"]:
        assert set(finding) == {
            "code", "slug", "status", "summary", "evidence", "fix", "reason", "host", "applies",
        }  # fmt: skip
        assert finding["status"] in {"ok", "note", "warning", "error", "skipped"}
        for evidence in finding["evidence"]:
            assert set(evidence) == {"quote", "source", "line", "rank", "host", "setting"}


def test_explain_shows_page_list_and_json() -> None:
    assert run("explain", "HOLD101").stdout.startswith("HOLD101 port-in-use: ")
    listed = run("explain", "--list").stdout.splitlines()
    assert len(listed) == len(catalogue.entries())
    (page,) = json.loads(run("explain", "port-in-use", "--json").stdout)["pages"]
    assert page["faces"] == ["check", "explain", "drill"]
    assert page["sources"]


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1', "sh", *HOLDFAST, "explain", "--list"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
