"""One launch of two ranks for all tests that need checkpoints of a real job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.places import ROOT, TARGETS

TARGET = TARGETS / "read_elsewhere.py"


class TwoRanks:
    """What the ranks left behind: `plain` (DDP) and `sharded` (FSDP2) checkpoints of step 7."""

    def __init__(self, folder: Path) -> None:
        self.plain, self.sharded = folder / "plain", folder / "sharded"
        self.found: dict[str, Any] = {}
        self.whole: dict[str, dict[str, torch.Tensor]] = {}
        """kind -> 'model/NAME' and 'optimizer/NAME/KEY' -> the tensor"""

    def folder(self, kind: str) -> Path:
        return {"plain": self.plain, "sharded": self.sharded}[kind]

    def step(self, kind: str) -> Path:
        return self.folder(kind) / "step-000000007"

    def model(self, kind: str) -> dict[str, torch.Tensor]:
        return self._part(kind, "model/")

    def optimizer(self, kind: str) -> dict[str, torch.Tensor]:
        return self._part(kind, "optimizer/")

    def _part(self, kind: str, prefix: str) -> dict[str, torch.Tensor]:
        whole = self.whole[kind]
        return {n.removeprefix(prefix): t for n, t in whole.items() if n.startswith(prefix)}


def launch(folder: Path) -> TwoRanks:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(TARGET), str(folder), str(folder / "store"), str(rank)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=170)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(said)
    done = TwoRanks(folder)
    [line] = [line for line in said[0].splitlines() if line.startswith("{")]
    done.found = json.loads(line)
    done.whole = torch.load(folder / "whole.pt", weights_only=True)
    return done
