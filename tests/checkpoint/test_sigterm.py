"""SIGTERM to real processes: answered within the grace time, or ended where nothing answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.checkpoint.sigterm import DEFAULT_GRACE, SigtermGrace, grace_time, stop_signals
from holdfast.rank.delivery import EVENTS
from holdfast.rank.events import HOPELESS
from tests.places import TARGETS

TARGET = TARGETS / "handle_sigterm.py"


def told(
    how: str, grace: float = 20.0, sign: signal.Signals = signal.SIGTERM
) -> tuple[int, str, float]:
    """Exit code, output, and seconds from the signal to the end."""
    with subprocess.Popen(
        [sys.executable, str(TARGET), how, str(grace)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            began = time.monotonic()
            process.send_signal(sign)
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    return process.returncode, out, time.monotonic() - began


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_steps_saves_and_then_exits_by_the_signal(sign: signal.Signals) -> None:
    """For Ctrl-C that is a KeyboardInterrupt, which the script may catch."""
    code, out, _ = told("steps", sign=sign)
    assert code == -sign
    assert out.startswith("saved with True\n")


def test_a_long_call_without_a_step_is_waited_for_and_saved() -> None:
    """An evaluation of one call, which takes longer than any step; or a barrier for it."""
    code, out, _ = told("evaluates")
    assert code == -signal.SIGTERM
    waiting, saved = out.splitlines()
    assert waiting.startswith("holdfast> SIGTERM: waiting up to 1")
    assert waiting.endswith(" s for the next ckpt.step(), to save and exit")
    assert saved == "saved with True"


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_rank_stuck_in_c_uses_its_share_of_the_grace_and_leaves_the_rest(
    sign: signal.Signals,
) -> None:
    code, out, seconds = told("stuck", grace=2.0, sign=sign)
    assert code == -sign
    name = "Ctrl-C" if sign == signal.SIGINT else "SIGTERM"
    assert out.splitlines()[-1] == (
        f"holdfast> {name}: exiting without a save: no ckpt.step() within 1.6 s, of a grace time "
        "of 2 s"
    )
    assert seconds >= 1.5


def test_a_rank_whose_peer_is_gone_exits_long_before_its_grace_is_over() -> None:
    code, out, seconds = told("alone", grace=60.0)
    assert code == -signal.SIGTERM
    assert out == "holdfast> SIGTERM: exiting without a save: rank 1 has exited\n"
    assert seconds < 20


def test_a_rank_is_quick_where_its_launcher_has_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a rank that is stuck, so no step will come; the launcher has said so."""
    events = tmp_path / "events"
    monkeypatch.setenv(EVENTS, str(events))
    (tmp_path / f"events{HOPELESS}").touch()
    code, out, seconds = told("stuck", grace=60.0)
    assert (code, out) == (-signal.SIGTERM, "")
    assert seconds < 20


def test_a_handler_of_the_script_gets_the_signal_after_the_save() -> None:
    code, out, _ = told("handler")
    assert code == 0
    assert out.split("\n")[:3] == ["saved with True", "mine", "still here"]


def test_a_forked_child_receives_the_signal_as_before_and_alone() -> None:
    """Else a launcher that tells the group would end loader workers, and these their rank."""
    grace = SigtermGrace(seconds=5.0)
    assert grace.open()
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        until = time.monotonic() + 10
        while os.getpgid(child) == os.getpgid(0):
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
    finally:
        assert not grace.close()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_time_left_counts_from_the_signal() -> None:
    grace = SigtermGrace(seconds=10.0)
    assert grace.left() == float("inf")
    grace.note_stop()
    assert 7.0 < grace.left() <= 8.0


@pytest.mark.parametrize(
    ("said", "meant"), [({}, DEFAULT_GRACE), ({"HOLDFAST_GRACE": "5"}, 5.0),
                        ({"HOLDFAST_GRACE": "soon"}, DEFAULT_GRACE),
                        ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "60"}, 60.0),
                        ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "60", "HOLDFAST_GRACE": "5"}, 5.0)],
)  # fmt: skip
def test_grace_time(said: dict[str, str], meant: float) -> None:
    assert grace_time(said) == meant


def test_ctrl_c_is_the_launchers_order_and_stays_the_terminals_interrupt() -> None:
    assert stop_signals({"TORCHELASTIC_RUN_ID": "7"}) == (signal.SIGTERM, signal.SIGINT)
    assert stop_signals({}) == (signal.SIGTERM,)
