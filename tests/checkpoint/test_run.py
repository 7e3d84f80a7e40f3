"""The whole way under `holdfast run`: told to end, saved within the grace time, ended by it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGINT, SIGTERM

import pytest

from holdfast.checkpoint import choose
from tests.places import TARGETS
from tests.run.launching import surroundings


@pytest.mark.parametrize(
    ("sign", "said", "asked", "moment"),
    [
        # Rank 0 evaluates, for longer than any step took, and rank 1 waits for it in a collective.
        (SIGTERM, "SIGTERM", "sleep=0:20:4", '"sleeps": 20'),
        pytest.param(SIGINT, "Ctrl-C", "pause=0.02", '"step": 20,', marks=pytest.mark.long),
    ],
)
def test_a_launcher_told_to_stop_lets_its_ranks_save(
    tmp_path: Path, sign: signal.Signals, said: str, asked: str, moment: str
) -> None:
    out = tmp_path / "out"
    with (
        out.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "holdfast", "run", "--no-check",
             "--runs", str(tmp_path / "runs"),
             "--nproc-per-node", "2", str(TARGETS / "checkpointed.py"), str(tmp_path / "saved"),
             "2h", "1000000", "pause=0.02", asked],
            stdout=file, stderr=subprocess.STDOUT, env=surroundings(), start_new_session=True,
            # a shell's `&` has it ignored
            preexec_fn=lambda: signal.signal(SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        ) as launcher,
    ):  # fmt: skip
        try:
            until = time.monotonic() + 90
            while moment not in out.read_text() and time.monotonic() < until:
                time.sleep(0.05)
            launcher.send_signal(sign)
            code = launcher.wait(30)
        finally:
            launcher.kill()
    assert code == 128 + sign, out.read_text()
    assert f"{said}: saved at step" in out.read_text()
    found = choose.candidates(str(tmp_path / "saved"))
    assert [candidate.problem for candidate in found] == [None]
    assert found[0].step >= 20
