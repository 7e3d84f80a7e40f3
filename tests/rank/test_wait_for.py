"""`holdfast.wait_for`: one exception for all the wordings of a timeout."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast.rank.wait_for import says_timeout
from tests.places import TARGETS
from tests.rank.ranks import free_port, own_stdin, place, started, wait_for
from tests.torch_version import without_gloos_lines


class Failing:
    def __init__(self, text: str) -> None:
        self.text = text

    def wait(self, timeout: timedelta) -> None:
        raise RuntimeError(self.text)


@pytest.mark.parametrize(
    "text",
    [
        "Operation timed out!",
        "[…/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete",
        "Application timeout caused pair closure",
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, …)",
        "WorkNCCL(SeqNum=3, …) ran for 10000 milliseconds before timing out.",
        "Rank 1 failed to pass monitoredBarrier in 1000 ms: timed out",
    ],
)
def test_all_wordings_of_a_timeout_are_one_exception(text: str) -> None:
    with pytest.raises(holdfast.CollectiveTimeout, match=r"within 2\.5 s") as caught:
        holdfast.wait_for(Failing(text), 2.5)
    assert str(caught.value.__cause__) == text
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "[…/pair.cc:553] Connection closed by peer [127.0.0.1]:2222",
        "NCCL error: unhandled system error",
        "size mismatch\nException raised from wait_with_timeout: timed out (most recent call)",
    ],
)
def test_other_errors_pass_as_they_are(text: str) -> None:
    assert not says_timeout(text)
    with pytest.raises(RuntimeError) as caught:
        holdfast.wait_for(Failing(text), 1)
    assert not isinstance(caught.value, holdfast.CollectiveTimeout)


def test_real_collectives_time_out_in_one_way(tmp_path: Path) -> None:
    port = free_port()
    with own_stdin(), ExitStack() as stack:
        first, second = (
            stack.enter_context(
                started(
                    tmp_path / str(number),
                    TARGETS / "wait_for_work.py",
                    environment=place(number, 2, port),
                )
            )
            for number in range(2)
        )
        wait_for(lambda: first.printed("ready"), "both timeouts")
        wait_for(lambda: second.printed("nothing"), "the other rank")
    assert without_gloos_lines(first.out.read_text()).splitlines() == [
        "together done",
        "nothing done",
        "short CollectiveTimeout True",
        "long CollectiveTimeout True",
        "ready",
    ]
