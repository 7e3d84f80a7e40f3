"""What torch and Gloo really write on ranks that fell because another did."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.scene import secondary_errors
from holdfast.analysis.scene.scene import LastWords
from holdfast.analysis.scene.secondary_errors import (
    LOST_PEER,
    MISMATCH,
    TEARDOWN,
    consequence,
    words_of_abort,
)
from tests.places import TARGETS

pytestmark = pytest.mark.xdist_group("consequences")  # real ranks are started once for all

TARGET = TARGETS / "gloo_faults.py"


class Fell(NamedTuple):
    code: int
    kind: str
    text: str
    stderr: str


@pytest.fixture(scope="module")
def fallen() -> dict[str, dict[int, Fell]]:
    """Fault -> rank -> how it ended; three ranks, the fault on rank 1."""
    done = subprocess.run(
        [sys.executable, str(TARGET)], capture_output=True, text=True, timeout=120, check=True
    )
    told = json.loads(done.stdout)
    return {
        fault: {int(rank): Fell(**ends) for rank, ends in ranks.items()}
        for fault, ranks in told.items()
    }


def said(fell: Fell) -> str:
    return consequence(LastWords(kind=fell.kind, text=fell.text, where="", at=0.0))


@pytest.mark.parametrize("fault", ["killed", "left"])
def test_who_lost_a_peer_is_not_the_cause(fallen: dict[str, dict[int, Fell]], fault: str) -> None:
    assert {rank: said(fell) for rank, fell in fallen[fault].items() if fell.kind} == {
        0: LOST_PEER,
        2: LOST_PEER,
    }


@pytest.mark.parametrize("fault", ["late", "late_for_monitored_barrier", "late_for_wait"])
def test_who_waited_in_vain_is_not_the_cause(
    fallen: dict[str, dict[int, Fell]], fault: str
) -> None:
    told = {rank: said(fell) for rank, fell in fallen[fault].items() if fell.kind}
    assert set(told) == {0, 2}
    assert secondary_errors.TIMED_OUT in told.values()
    assert set(told.values()) <= {secondary_errors.TIMED_OUT, LOST_PEER}


def test_who_was_sent_too_much_is_not_the_cause(fallen: dict[str, dict[int, Fell]]) -> None:
    victim = fallen["larger"][0]
    assert victim.code == -6
    words = words_of_abort(victim.stderr, at=5.0)
    assert words is not None
    assert (words.kind, words.at) == ("gloo::EnforceNotMet", 5.0)
    assert consequence(words) == MISMATCH
    assert {said(fell) for rank, fell in fallen["larger"].items() if rank} == {LOST_PEER}


def test_a_store_that_went_away_is_not_the_cause(fallen: dict[str, dict[int, Fell]]) -> None:
    assert said(fallen["store_gone"][2]) == LOST_PEER


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        ("BrokenPipeError", "[Errno 32] Broken pipe"),
        ("TimeoutError", "timed out"),
        ("ConnectionError", "('Connection aborted.', RemoteDisconnected('closed by peer'))"),
        ("RuntimeError", "CUDA error: device-side assert triggered"),
        ("RuntimeError", "my dataset server said: Connection reset by peer"),
        ("ValueError", "Timed out waiting 5ms for recv operation to complete"),
        ("DistNetworkError", "The server socket has failed to listen … EADDRINUSE"),
        ("KeyboardInterrupt", ""),
    ],
)
def test_what_a_program_says_itself_is_a_cause(kind: str, text: str) -> None:
    assert consequence(LastWords(kind=kind, text=text, where="", at=0.0)) == ""


def test_an_exception_raised_for_another_one_is_what_that_one_is() -> None:
    """As the stages of a pipeline do, and scripts that catch and raise their own."""
    wrapped = LastWords(
        kind="StageError",
        text="[Stage 0] failed to run forward",
        where="",
        at=0.0,
        root_kind="DistBackendError",
        root_text="NCCL error in: x.cpp:1, remote process exited or there was a network error",
    )
    assert consequence(wrapped) == LOST_PEER
    assert consequence(msgspec.structs.replace(wrapped, root_kind="", root_text="")) == ""


WATCHDOG = (
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=12000) ran for 12010 milliseconds"
)


def test_the_watchdog_of_nccl_is_a_consequence() -> None:
    """Format: ProcessGroupNCCL.cpp, checkTimeout and ncclCommWatchdog."""
    stderr = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  [PG ID 0 PG GUID 0 Rank 3] Process group watchdog thread terminated with "
        f"exception: {WATCHDOG}\n"
    )
    words = words_of_abort(stderr, at=1.0)
    assert words is not None
    assert consequence(words) == secondary_errors.TIMED_OUT


def test_a_process_on_its_way_out() -> None:
    words = words_of_abort("x\nterminate called without an active exception\n", at=1.0)
    assert words is not None
    assert consequence(words) == TEARDOWN
    assert words_of_abort("Traceback (most recent call last):\n", at=1.0) is None


@given(st.text(), st.text())
def test_any_text_is_taken(kind: str, text: str) -> None:
    words = LastWords(kind=kind, text=text, where="", at=0.0)
    assert consequence(words) in ("", LOST_PEER, secondary_errors.TIMED_OUT, MISMATCH, TEARDOWN)
    words_of_abort(text, at=0.0)


def test_the_watchdog_says_that_a_peer_is_gone_long_before_it_aborts() -> None:
    """As torch 2.11 printed it on an H200 when another rank had left with exit code 0."""
    said = (
        "[rank0]:[E1115 22:10:46.818789859 ProcessGroupNCCL.cpp:612] [Rank 0] Collective "
        "WorkNCCL(SeqNum=150, OpType=_REDUCE_SCATTER_BASE, NumelIn=8320, NumelOut=4160, "
        "Timeout(ms)=600000) raised the following async exception: NCCL error: remote process "
        "exited or there was a network error, NCCL version 2.28.9\n"
    )
    assert secondary_errors.watchdog_lost_peer(f"step 20\n{said}")
    assert not secondary_errors.watchdog_lost_peer("remote process exited\n")
