"""The output of several launchers on one screen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.run.hosts.shown_lines import LONGEST, ShownLine, ShownLines


def test_lines_are_whole_and_carry_their_node() -> None:
    shown = ShownLines(["a", "node-b"])
    assert shown.add("a", 1, b"step 1\nste") == [ShownLine(1, b"[a]      step 1\n")]
    assert shown.add("node-b", 1, b"x\n") == [ShownLine(1, b"[node-b] x\n")]
    assert shown.add("a", 2, b"warning\r\n") == [ShownLine(2, b"[a]      warning\n")]
    assert shown.add("a", 1, b"p 2\n") == [ShownLine(1, b"[a]      step 2\n")]
    assert shown.add("a", 1, b"\r 10%\r 20%") == []
    assert shown.rest("a") == [ShownLine(1, b"[a]       20%\n")]
    assert shown.rest("a") == []
    assert shown.add("a", 1, b"y" * (LONGEST + 1)) == [
        ShownLine(1, b"[a]      " + b"y" * (LONGEST + 1) + b"\n")
    ]


def test_what_holdfast_says_on_all_nodes_is_shown_once() -> None:
    shown = ShownLines(["a", "b", "c"])
    said = b"holdfast> restarting (1 of 3)\n"
    assert shown.add("b", 2, said) == [ShownLine(2, b"[b] " + said)]
    assert shown.add("a", 2, said) == []
    assert shown.add("a", 2, said) == [ShownLine(2, b"[a] " + said)], "a second time"
    assert shown.add("b", 2, said) == []
    assert shown.add("c", 2, said) == []
    assert shown.add("c", 2, said) == []
    assert shown.add("c", 2, said) == [ShownLine(2, b"[c] " + said)]
    assert len(shown.add("a", 1, b"same\n") + shown.add("b", 1, b"same\n")) == 2, "the ranks' own"


@given(st.lists(st.text(alphabet="ab \n", min_size=1, max_size=9), max_size=20), st.integers(1, 5))
def test_nothing_of_a_rank_is_lost_wherever_it_is_cut(texts: list[str], size: int) -> None:
    whole = "".join(texts).encode()
    shown = ShownLines(["n"])
    lines = []
    for at in range(0, len(whole), size):
        lines += shown.add("n", 1, whole[at : at + size])
    lines += shown.rest("n")
    told = b"".join(line.text.removeprefix(b"[n] ") for line in lines)
    assert told == (whole if whole.endswith(b"\n") or not whole else whole + b"\n")
