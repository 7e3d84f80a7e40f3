"""Text cut at the width of a terminal, and text that only looks so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.explain.read.rewrap import rejoined

WATCHDOG = (
    "[rank{rank}]:[E1115 10:12:01.1 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=84211, OpType=ALLREDUCE, NumelIn=1048576, "
    "NumelOut=1048576, Timeout(ms)=600000) ran for 600031 milliseconds before timing out."
)
SHORT = "step 1 loss 0.3"


def cut(text: str, width: int) -> str:
    pieces = [
        line[at : at + width]
        for line in text.split("\n")
        for at in range(0, max(1, len(line)), width)
    ]
    return "\n".join(pieces)


@pytest.mark.parametrize("width", [80, 100, 116, 132])
def test_what_a_terminal_cut_is_whole_again(width: int) -> None:
    text = "\n".join([SHORT, WATCHDOG.format(rank=0), SHORT, WATCHDOG.format(rank=1), SHORT])
    pasted = cut(text, width)
    again = rejoined(pasted.encode()).decode()
    assert [line for line in again.split("\n") if line] == text.split("\n")
    assert again.count("\n") == pasted.count("\n"), "places stay what they were"
    last = pasted.split("\n").index(SHORT, 1)
    assert again.split("\n")[last] == SHORT


@pytest.mark.parametrize(
    "text",
    [
        "",
        SHORT,
        # Ranks that say the same, in lines of one length.
        "\n".join(WATCHDOG.format(rank=rank)[:120] for rank in range(8)),
        "\n".join(["x" * 90] * 6),
        # Tracebacks: what follows a long line is indented, or names an exception.
        '  File "/a/b.py", line 3, in <module>' + "x" * 60 + "\n    " + "y" * 92 + "\nKeyError: 1",
        "\n".join(["a" * 20, "b" * 20, "c" * 20]),
        WATCHDOG.format(rank=0) + "\n" + SHORT,
    ],
)
def test_what_was_not_cut_stays_as_it_is(text: str) -> None:
    assert rejoined(text.encode()) == text.encode()


@given(st.binary(max_size=2000))
def test_any_bytes_keep_their_lines(data: bytes) -> None:
    again = rejoined(data)
    assert again.count(b"\n") == data.count(b"\n")
    kept = data.decode("utf-8", "replace").replace("\n", "")
    assert again.decode("utf-8", "replace").replace("\n", "") == kept
