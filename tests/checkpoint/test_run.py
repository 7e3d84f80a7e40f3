"""The whole way under `holdfast run`: told to end, saved within the grace time, ended by it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast.checkpoint import choose
from tests.places import TARGETS
from tests.run.launching import surroundings


def test_sigterm_to_the_launcher_lets_its_ranks_save(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        out.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "holdfast", "run", "--no-check",
             "--runs", str(tmp_path / "runs"),
             "--nproc-per-node", "2", str(TARGETS / "checkpointed.py"), str(tmp_path / "saved"),
             "2h", "1000000", "pause=0.02"],
            stdout=file, stderr=subprocess.STDOUT, env=surroundings(), start_new_session=True,
        ) as launcher,
    ):  # fmt: skip
        try:
            until = time.monotonic() + 90
            while '"step": 20,' not in out.read_text() and time.monotonic() < until:
                time.sleep(0.05)
            launcher.send_signal(signal.SIGTERM)
            code = launcher.wait(30)
        finally:
            launcher.kill()
    assert code == 128 + signal.SIGTERM, out.read_text()
    assert "SIGTERM: saved at step" in out.read_text()
    found = choose.candidates(str(tmp_path / "saved"))
    assert [candidate.problem for candidate in found] == [None]
    assert found[0].step >= 20
