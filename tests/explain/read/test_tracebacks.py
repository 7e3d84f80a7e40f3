"""Exceptions out of whole, interleaved, chained and cut tracebacks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.explain.read import tracebacks
from holdfast.explain.read.line_prefix import head

BEGIN = "Traceback (most recent call last):"
FRAMES = ['  File "train.py", line 9, in main', "    step()", '  File "data.py", line 3, in step']


def read(*lines: str) -> tracebacks.ParsedException | None:
    return tracebacks.traceback(head(lines[0]), lines[1:])


def test_a_whole_one() -> None:
    told = read(BEGIN, *FRAMES, "    raise ValueError(1)", "ValueError: no shard", "")
    assert told
    assert (told.kind, told.text, told.ends) == ("ValueError", "no shard", 5)
    assert [frame.function for frame in told.frames] == ["step", "main"]


def test_lines_of_other_ranks_in_between() -> None:
    mine = [f"[rank3]: {line}" for line in (BEGIN, *FRAMES, "KeyError: 'a'")]
    lines = [line for one in mine for line in (one, "[rank1]: ValueError: not mine", "step 5")]
    told = read(*lines)
    assert told
    assert (told.kind, told.text) == ("KeyError", "'a'")


def test_a_message_continues_until_something_else_begins() -> None:
    told = read(
        f"[rank0]: {BEGIN}",
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, NCCL version 2.27",
        "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.",
        "[rank0]: Last error:",
        "[rank0]: Cuda failure 2 'out of memory'",
        "[rank0]:[W1115 01:03:15.1 ProcessGroupNCCL.cpp:1] Warning: not destroyed",
    )
    assert told
    assert told.text.endswith("Cuda failure 2 'out of memory'")
    assert told.lines == 4


def test_the_first_of_two_chained_ones_has_its_own_end() -> None:
    rest = ("", "During handling of the above exception, another exception occurred:", "", BEGIN)
    told = read(BEGIN, *FRAMES, "KeyError: 'a'", *rest, "ValueError: b")
    assert told
    assert (told.kind, told.text) == ("KeyError", "'a'")


def test_an_exception_group() -> None:
    told = read(
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "a.py", line 1, in <module>',
        "  |     run()",
        "  | ExceptionGroup: many (2 sub-exceptions)",
        "  +-+---------------- 1 ----------------",
    )
    assert told
    assert told.kind == "ExceptionGroup"


def test_the_row_of_torchruns_summary() -> None:
    lines = ("  traceback : " + BEGIN, *("  " + f for f in FRAMES), "  OSError: gone", "====" * 9)
    told = read(*lines)
    assert told
    assert (told.kind, told.text, len(told.frames)) == ("OSError", "gone", 2)


@pytest.mark.parametrize("rest", [(), tuple(FRAMES), (*FRAMES, "!!! 3 <-")])
def test_a_cut_one_has_no_end(rest: tuple[str, ...]) -> None:
    assert read(BEGIN, *rest) is None


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("RuntimeError: boo", "RuntimeError", "boo"),
        ("torch.OutOfMemoryError: CUDA out", "torch.OutOfMemoryError", "CUDA out"),
        ("E   ValueError: in a test", "ValueError", "in a test"),
        ("KeyboardInterrupt", "KeyboardInterrupt", ""),
    ],
)
def test_only_the_last_line(line: str, kind: str, text: str) -> None:
    told = tracebacks.printed(head(line), ())
    assert told
    assert (told.kind, told.text) == (kind, text)


def test_what_cpp_threw() -> None:
    lines = ("  what():  [enforce fail at pair.cc:446] 8 <= 4",)
    told = tracebacks.thrown(head("terminate called after throwing an instance of 'g::E'"), lines)
    assert told
    assert (told.kind, told.text) == ("g::E", "[enforce fail at pair.cc:446] 8 <= 4")
    told = tracebacks.thrown(head("terminate called without an active exception"), ())
    assert told
    assert told.kind == "terminate"


def test_error_files() -> None:
    stack = "\n".join((BEGIN, *FRAMES, "ValueError: no shard"))
    whole = {"message": {"message": "ValueError: no shard", "extraInfo": {"py_callstack": stack}}}
    told = tracebacks.error_file(json.dumps(whole).encode())
    assert told
    assert (told.kind, told.text, len(told.frames)) == ("ValueError", "no shard", 2)
    told = tracebacks.error_file(b'{"message": "OSError: gone"}')
    assert told
    assert (told.kind, told.text) == ("OSError", "gone")


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"message": 3}', b'{"message": {"a": 1}}'])
def test_other_documents_are_no_error_files(data: bytes) -> None:
    assert tracebacks.error_file(data) is None


_LINES = st.lists(
    st.sampled_from(
        [BEGIN, *FRAMES, "ValueError: x", "", "  | a", "[rank1]: b", "what(): c", "---"]
    )
    | st.text(max_size=20),
    min_size=1,
    max_size=12,
)


@given(_LINES)
def test_any_lines_are_taken(lines: list[str]) -> None:
    first, rest = head(lines[0]), lines[1:]
    for reader in (tracebacks.traceback, tracebacks.printed, tracebacks.thrown):
        told = reader(first, rest)
        assert told is None or told.ends <= told.lines <= len(rest)


@given(
    st.binary(max_size=60) | st.recursive(st.none() | st.text(), st.lists).map(repr).map(str.encode)
)
def test_any_bytes_are_taken(data: bytes) -> None:
    found = tracebacks.error_file(data)
    assert found is None or found.kind
