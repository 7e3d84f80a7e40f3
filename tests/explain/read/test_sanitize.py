"""What is quoted on a screen must not be able to command it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.explain.read.sanitize import decoded, plain

CASES = {
    "\x1b[31mRuntimeError\x1b[0m: no": "RuntimeError: no",
    "\x1b[1;38;5;196mE\x1b[m": "E",
    "\x1b[2J\x1b[Hforged": "forged",
    "a\x9b31mb": "ab",
    "\x1b]0;title\x07text": "text",
    "\x1b]52;c;aGk=\x1b\\text": "text",
    "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
    "\x1bP1$r0m\x1b\\after": "after",
    "\x1b]0;no terminator RuntimeError": "0;no terminator RuntimeError",
    "cut in a colour \x1b[3": "cut in a colour ",
    "lone \x1b": "lone ",
    "\x1b(B\x1b7x\x1b8": "x",
    "bell\x07 back\x08space nul\x00 del\x7f": "bell backspace nul del",
    "user\u202egnp.exe\u2066x\u2069\u200f": r"user\u202egnp.exe\u2066x\u2069\u200f",
    "zero\u200bwidth\ufeff": "zerowidth",
    "line\u2028separator\nnew\rcarriage": "lineseparatornewcarriage",
    "tab\tstays, é and 漢 too ✓": "tab\tstays, é and 漢 too ✓",
    "lone \udcff surrogate": "lone \ufffd surrogate",
    "tag\U000e0041s": "tags",
}


@pytest.mark.parametrize(("raw", "safe"), CASES.items(), ids=map(ascii, CASES))
def test_what_a_terminal_would_obey_is_gone(raw: str, safe: str) -> None:
    assert plain(raw) == safe


def test_bytes_that_are_no_text_show_as_such() -> None:
    assert decoded(b"loss \xff\xfe 1.0") == "loss \ufffd\ufffd 1.0"


def test_lines_stay_lines() -> None:
    assert decoded(b"a\x1b[0m\r\n1%\r2%\nb\x0b\x0cc\n") == "a\n2%\nbc\n"


ESCAPES = st.sampled_from(["\x1b[", "\x1b]", "\x1b\\", "\x9b", "31m", "\x07", "\x1b", "\u202e"])


@given(st.lists(ESCAPES | st.text(max_size=8)).map("".join))
def test_nothing_left_can_command_a_terminal(text: str) -> None:
    safe = plain(text)
    assert all(c == "\t" or unicodedata.category(c) not in ("Cc", "Cs", "Zl") for c in safe)
    assert plain(safe) == safe
    safe.encode()


def test_a_long_hostile_line_takes_no_time() -> None:
    assert plain("\x1b]" * 50_000 + "\x1b[" + "1" * 100_000) == ""
