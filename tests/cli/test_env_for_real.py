"""`holdfast env` as a user types it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
from tests.cli.holdfast_command import run

SCRIPT = """
import torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(minutes=7))
"""
PATIENT = ("--deadline", "30")
"""a loaded test machine must not look like one that hangs"""
OURS = ("NCCL_", "TORCH", "PET_", "SLURM_", "MASTER_", "RANK", "WORLD_SIZE", "GLOO_")


class Asker:
    """Ask within this process: a new interpreter for each question would take half a minute."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
    ) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.chdir(folder)
        for name in [name for name in os.environ if name.startswith(OURS)]:
            monkeypatch.delenv(name)

    def __call__(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """The exit code, stdout, stderr."""
        with self._monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code = main(["env", *PATIENT, *arguments])
        told = self._capsys.readouterr()
        return code, told.out, told.err

    def document(self, *arguments: str, **variables: str) -> dict[str, Any]:
        code, out, err = self("--json", *arguments, **variables)
        assert code == 0, err
        answer: dict[str, Any] = json.loads(out)
        assert (answer["schema"], answer["command"]) == ("holdfast/1", "env")
        return answer


@pytest.fixture
def ask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Asker:
    return Asker(monkeypatch, capsys, tmp_path)


def settings_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in answer["settings"]}


def test_environment_command_line_and_script_come_together(ask: Asker, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ("NCCL_DEBUG=WARN", "torchrun", "--nproc-per-node=2", "train.py")
    answer = ask.document("--", *command, NCCL_DEBUG="INFO", NCCL_TIMEOUT="5", RANK="3")
    found = settings_of(answer)
    assert (found["NCCL_DEBUG"]["value"], found["NCCL_DEBUG"]["origin"]) == ("WARN", "command line")
    assert found["NCCL_TIMEOUT"]["verdict"] == "has no effect"
    assert found["RANK"]["verdict"] == "overridden"
    group = next(one for one in answer["clocks"] if one["key"] == "group-other")
    assert (group["seconds"], group["origin"]) == (420, "init_process_group at train.py:4")


def test_a_launch_script_is_read_too(ask: Asker, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.sh").write_text(
        "#SBATCH --time=00:05:00\nexport NCCL_IB_DISABLE=1\nsrun torchrun --nnodes 2 train.py\n"
    )
    answer = ask.document("--", "sbatch", "job.sh")
    assert settings_of(answer)["NCCL_IB_DISABLE"]["origin"] == "job.sh:2"
    assert "before a hang is noticed" in json.dumps(answer["findings"])


def test_a_broken_script_is_reported_and_the_rest_is_answered(ask: Asker, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def broken(:\n")
    answer = ask.document("--", "torchrun", "train.py")
    assert any("train.py could not be read" in remark for remark in answer["remarks"])
    assert answer["clocks"]


def test_files_of_nccl_and_what_loses_against_the_environment(ask: Asker, tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("NCCL_DEBUG=WARN\nNCCL_P2P_LEVEL=NVL\n")
    answer = ask.document(NCCL_CONF_FILE=str(conf), NCCL_DEBUG="INFO")
    assert settings_of(answer)["NCCL_P2P_LEVEL"]["origin"] == f"{conf}:2"
    lost = [one for one in answer["settings"] if one["verdict"] == "overridden"]
    assert [(one["name"], one["value"], one["why"]) for one in lost] == [
        ("NCCL_DEBUG", "WARN", "overridden by the environment")
    ]


def test_secrets_are_never_printed(ask: Asker) -> None:
    secret = "0123456789-a-key-of-thirty-two-bytes"
    typed = ("--", f"NCCL_PSK={secret}", "torchrun", "t.py")
    for arguments in ((), ("--json",), ("NCCL_PSK",), typed):
        told = ask(*arguments, NCCL_PSK=secret, SLURM_JWT=secret, HOROVOD_SECRET_KEY=secret)
        assert secret not in "".join(map(str, told))


def test_a_name_is_enough_to_hide_a_value(ask: Asker, tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("NCCL_HIDDEN_KEY=swordfish\nNCCL_NET_TOKEN=one swordfish\n")
    secret = {
        "TORCH_KEY": "swordfish", "DS_COOKIE": "swordfish", "NCCL_A_TOKEN": "two swordfish",
        "PET_PAT": "swordfish", "SLURM_SECRETS": "swordfish", "NCCL_CONF_FILE": str(conf),
        "NCCL_IB_PKEY": "3",
    }  # fmt: skip
    for arguments in ((), ("--json",), ("--all",), ("TORCH_KEY",), ("--json", "DS_COOKIE")):
        told = ask(*arguments, **secret)
        assert told[0] == 0
        assert "swordfish" not in "".join(map(str, told))
    assert settings_of(ask.document(**secret))["NCCL_IB_PKEY"]["value"] == "3"


def test_a_file_of_nccl_that_is_none(ask: Asker, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "pipe"):
        answer = ask.document(NCCL_CONF_FILE=str(path))
        assert any(f"NCCL_CONF_FILE names '{path}'" in remark for remark in answer["remarks"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"x = " + b"(" * 50_000, "too many nested parentheses (line 1)"),
        (b"\x7fELF\0\0", "not text"),
        (b"#" * (6 << 20), "only files up to 5 MiB"),
        (b"# coding: klingon\n", "klingon"),
    ],
)
def test_a_script_that_cannot_be_read(ask: Asker, tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "train.py").write_bytes(content)
    answer = ask.document("--", "torchrun", "train.py")
    assert any(why in remark and "<unknown>" not in remark for remark in answer["remarks"])


def test_a_script_with_a_mark_and_a_launch_script_of_any_name(ask: Asker, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"\xef\xbb\xbf" + SCRIPT.encode())
    (tmp_path / "go.now").write_text("export NCCL_IB_DISABLE=1\ntorchrun train.py\n")
    answer = ask.document("--", "bash", "go.now")
    assert settings_of(answer)["NCCL_IB_DISABLE"]["origin"] == "go.now:1"
    assert any(one["origin"] == "init_process_group at train.py:4" for one in answer["clocks"])


@pytest.mark.parametrize("columns", ["40", "80", "120"])
def test_the_text_fits_the_terminal(ask: Asker, columns: str) -> None:
    settings = {"NCCL_TIMEOUT": "1", "TORCH_NCCL_BLOCKING_WAIT": "1", "COLUMNS": columns}
    code, out, _ = ask("--", "torchrun", "--nnodes=2", "t.py", **settings)
    assert code == 0
    assert "timeouts: every limit" in out
    named = [line for line in out.splitlines() if not line.startswith("    ")]
    assert "  NCCL_TIMEOUT=1" in "\n".join(named)
    details = [line for line in out.splitlines() if line.startswith("      ")]
    assert max(len(line) for line in details) <= max(60, int(columns))


def test_one_variable_a_slip_and_a_family(ask: Asker) -> None:
    code, out, _ = ask("TORCH_NCCL_BLOCKING_WAIT", TORCH_NCCL_BLOCKING_WAIT="1")
    assert code == 0
    assert "older names NCCL_BLOCKING_WAIT" in out
    assert "1 (environment)" in out
    code, out, err = ask("NCCL_SOKET_IFNAME")
    assert (code, out) == (2, "")
    assert "did you mean NCCL_SOCKET_IFNAME" in err
    assert "TORCH_FR_BUFFER_SIZE" in ask("TORCH_FR_*")[1]
    assert ask("NO_SUCH_*")[0] == 2
    assert "did you mean NCCL_IB_*?" in ask("nccl_ib_*")[2]


def test_the_installed_torch_is_the_proof(ask: Asker) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch installed")
    assert "the name is in libtorch_cpu.so" in ask("TORCH_DISTRIBUTED_DEBUG")[1]


def test_export_is_for_eval(ask: Asker) -> None:
    code, out, _ = ask("--export", NCCL_TIMEOUT="5")
    assert code == 0
    assert "unset NCCL_TIMEOUT" in out.splitlines()
    assert all(line.startswith(("#", "export ", "unset ")) for line in out.splitlines())
    answer = ask.document("--export", "json", "--preset", "production")
    assert set(answer) == {"schema", "command", "set", "unset", "reasons", "remarks"}


def test_exit_codes(ask: Asker) -> None:
    assert ask(NCCL_TIMEOUT="5")[0] == 0
    assert ask("--fail-on", "warning", NCCL_TIMEOUT="5")[0] == 1
    assert ask("--fail-on", "error", NCCL_TIMEOUT="5")[0] == 0
    assert ask("--all", "NCCL_DEBUG")[0] == 2
    assert ask("--export", "sh", "NCCL_DEBUG")[0] == 2
    assert ask("--preset", "production", "--all")[0] == 2
    assert ask("--nnodes", "many")[0] == 2


def test_the_whole_table(ask: Asker) -> None:
    answer = ask.document("--all")
    assert {"NCCL_DEBUG", "SLURM_JOB_ID"} <= {row["name"] for row in answer["table"]}
    assert all(row["source"] for row in answer["table"])


def test_odd_values_are_shown_and_not_refused(ask: Asker) -> None:
    code, out, err = ask(MASTER_PORT="no port", PET_NNODES="0", SLURM_JOB_END_TIME="?")
    assert code == 0, err
    assert "MASTER_PORT=no port" in out


def test_for_real_and_without_torch() -> None:
    """In an interpreter of its own; nothing imports torch, which takes seconds."""
    done = run("env", *PATIENT, "--", "NCCL_DEBUG=INFO", "torchrun", "t.py")
    assert done.returncode == 0, done.stderr
    assert "NCCL_DEBUG=INFO" in done.stdout
    code = (
        "import sys; from holdfast.cli.main import main; main(['env', '--', 'torchrun', 't.py']);"
        "sys.exit('torch' in sys.modules)"
    )
    done_within = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done_within.returncode == 0


def test_one_slip_among_several_names_costs_only_its_own_answer(ask: Asker) -> None:
    code, out, err = ask("NCCL_TIMEOUT", "OMP_NUM_THREADS", "NCL_DEBUG")
    assert code == 2
    assert "NCCL has no collective timeout" in out
    assert "threads per process" in out
    assert "holdfast does not know 'NCL_DEBUG', and it is not set here" in err
    assert "did you mean NCCL_DEBUG" in err


def test_a_slip_in_the_environment_is_shown(ask: Asker) -> None:
    _, out, _ = ask(NCL_DEBUG="INFO", NCCL_IB_DISABLE="true")
    assert "NCL_DEBUG is no known variable, NCCL_DEBUG is" in out
    assert "NCCL_IB_DISABLE=true has no effect: NCCL reads a number here" in out
