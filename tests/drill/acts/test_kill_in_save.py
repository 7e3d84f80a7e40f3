"""A process is killed in the middle of a save, however short that is: by fanotify and inotify."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast.analysis.drill.host_acts import KillDuringSave
from holdfast.drill.acts.kill_in_save import KillDuringSaveCarrier
from holdfast.drill.acts.registry import carrier_of
from holdfast.drill.stage import CannotInjectHere, Stage
from tests.drill.acts.stand_in import SECONDS, a_stage, gate_program, started

pytestmark = pytest.mark.lab
ACT = KillDuringSave(ranks=(0,))
START = """
import os, sys, time
lock = open("ckpts/lock", "a")
with open("ckpts/last.pt", "wb") as file:
    file.write(b"x" * 1000)
"""
OVER_THE_ONLY_COPY = """
open("ckpts/last.pt").close()
with open("ckpts/last.pt", "wb") as file:
    file.write(b"y" * 1000)
"""
WRITE_ASIDE = """
os.makedirs("ckpts/.tmp-2", exist_ok=True)
with open("ckpts/.tmp-2/model", "wb") as file:
    file.write(b"y" * 1000)
os.replace("ckpts/.tmp-2/model", "ckpts/last.pt")
"""
IN_A_CHILD = f"""
pid = os.fork()
if pid == 0:
{"".join(f"    {line}{chr(10)}" for line in OVER_THE_ONLY_COPY.strip().splitlines())}
    os._exit(0)
os.waitpid(pid, 0)
time.sleep(600)
"""


def prepared(folder: Path) -> tuple[Stage, KillDuringSaveCarrier, Path]:
    stage, carrier = a_stage(folder), carrier_of(ACT)
    assert isinstance(carrier, KillDuringSaveCarrier)
    carrier.prepare(ACT, stage)
    assert stage.checkpoints is not None
    return stage, carrier, stage.checkpoints


@pytest.mark.parametrize("save", [OVER_THE_ONLY_COPY, IN_A_CHILD], ids=["itself", "by a child"])
def test_a_save_over_the_only_copy_leaves_it_torn(tmp_path: Path, save: str) -> None:
    stage, carrier, folder = prepared(tmp_path)
    if carrier.mounts is None:
        pytest.skip("needs a mount namespace")
    with started(stage, START + gate_program(save)) as rank:
        carrier.inject(ACT, stage)
        assert rank.wait(SECONDS) == -signal.SIGKILL
        assert stage.injected
    assert (folder / "last.pt").read_bytes() == b""


def test_a_save_with_a_rename_leaves_the_old_one(tmp_path: Path) -> None:
    stage, carrier, folder = prepared(tmp_path)
    if carrier.mounts is None:
        pytest.skip("needs a mount namespace")
    with started(stage, START + gate_program(WRITE_ASIDE)) as rank:
        carrier.inject(ACT, stage)
        assert rank.wait(SECONDS) == -signal.SIGKILL
    assert (folder / "last.pt").read_bytes() == b"x" * 1000
    assert (folder / ".tmp-2" / "model").read_bytes() == b""


def test_without_the_right_to_a_mount_the_first_write_is_caught(tmp_path: Path) -> None:
    """One that is over by then goes on: it is tried again at the next."""
    stage, carrier, folder = prepared(tmp_path)
    carrier.mounts = None
    again = "".join(f"    {line}\n" for line in OVER_THE_ONLY_COPY.strip().splitlines())
    long = again.replace('b"y" * 1000)', 'b"y" * 1000); file.flush(); time.sleep(0.2)')
    program = f"for _ in range(20):\n{again}    time.sleep(0.05)\n{long}"
    with started(stage, START + gate_program(program)) as rank:
        carrier.inject(ACT, stage)
        assert rank.wait(SECONDS) == -signal.SIGKILL
    assert (folder / "last.pt").exists()


def test_a_job_that_saves_no_more_is_no_drill(tmp_path: Path) -> None:
    stage, carrier, _ = prepared(tmp_path)
    with (
        started(stage, START + gate_program("open('ckpts/last.pt').read()")) as rank,
        pytest.raises(CannotInjectHere, match="no save of rank 0"),
    ):
        carrier.inject(ACT, stage)
    assert rank.returncode == 0
