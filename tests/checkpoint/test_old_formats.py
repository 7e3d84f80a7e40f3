"""Checkpoints written by earlier versions: two ranks resume from each of them, in one launch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.checkpoint import choose
from tests.targets import old_formats

HERE = Path(__file__).parent
SAVED = HERE / "saved"
FORMATS = sorted(path.name for path in SAVED.iterdir())


@pytest.mark.parametrize("name", FORMATS)
def test_two_ranks_resume(name: str, tmp_path: Path) -> None:
    shutil.copytree(SAVED / name, tmp_path / "ckpts")
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d",
              "--rdzv-endpoint=localhost:0", old_formats.__file__]  # fmt: skip
    done = subprocess.run(
        [sys.executable, *launch, "resume", str(tmp_path / "ckpts")],
        cwd=HERE.parent.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    wrong = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert wrong == [{"plain": [], "sharded": []}] * 2


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["plain", "sharded"])
def test_damage_is_seen_there_as_well(name: str, kind: str, tmp_path: Path) -> None:
    shutil.copytree(SAVED / name / kind, tmp_path / "ckpts")
    tensors = tmp_path / "ckpts" / "step-000000003" / "rank-0.safetensors"
    damaged = bytearray(tensors.read_bytes())
    [intact] = choose.candidates(str(tmp_path / "ckpts"))
    assert intact.manifest
    assert choose.verify(intact.path, intact.manifest.files) is None
    damaged[-1] ^= 1
    tensors.write_bytes(damaged)
    problem = choose.verify(intact.path, intact.manifest.files)
    assert problem is not None
    assert problem.why == "the bytes of rank-0.safetensors have changed"
