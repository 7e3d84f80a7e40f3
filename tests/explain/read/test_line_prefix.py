"""Prefixes of all sorts, nested, and lines that only look as if they had one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.explain.read import line_prefix
from holdfast.explain.read.line_prefix import Grammar, head

GLOG = "[E1115 01:03:15.143127245 ProcessGroupNCCL.cpp:689]"

LINES = [
    (">   File", {"rank": None}, "  File"),
    ("> > [rank3]: boo", {"rank": 3}, "boo"),
    (">> not quoted", {}, ">> not quoted"),
    (f"[rank3]:{GLOG} [Rank 1] Watchdog", {"rank": 3}, "[Rank 1] Watchdog"),
    (f"[rank4]:{GLOG} [PG 5 Rank 0] x", {"rank": 4}, "[PG 5 Rank 0] x"),
    ("[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog", {"rank": 1}, "[Rank 1] Watchdog"),
    (f"{GLOG} [PG ID 0 PG GUID 0(default_pg) Rank 2] x", {"rank": 2}, None),
    (f"{GLOG} [PG ID 3 PG GUID 7(mesh_tp) Rank 2] x", {"rank": None}, None),
    ("[default2]:[rank6]:   File", {"rank": 6, "local_rank": 2}, "  File"),
    ("[default2]:  File", {"rank": None, "local_rank": 2}, "  File"),
    ("[node1:3]: hello", {"host": "node1", "local_rank": 3}, "hello"),
    ("[1,3]<stderr>:boo", {"rank": 3}, "boo"),
    ("[3]<stdout>: boo", {"rank": 3}, "boo"),
    ("[rank: 1] Seed set to 1", {"rank": 1}, "Seed set to 1"),
    ("[rank 0/4] pid 1267", {"rank": 0}, "pid 1267"),
    ("Rank 7: hello", {"rank": 7}, "hello"),
    ("vm:12:34 [0] NCCL INFO x", {"host": "vm", "pid": 12, "rank": None}, "NCCL INFO x"),
    (
        "[2026-11-15 01:03:15] vm:12:34 [0] misc/socket.cc:57 NCCL WARN x",
        {"host": "vm", "pid": 12, "at": 1794704595.0},
        "misc/socket.cc:57 NCCL WARN x",
    ),
    (
        "(RayTrainWorker pid=123, ip=192.0.2.1) [rank3]: Traceback",
        {"host": "192.0.2.1", "pid": 123, "rank": 3},
        "Traceback",
    ),
    ("(VllmWorker rank=1 pid=5) x", {"rank": 1, "pid": 5}, "x"),
    (
        "Nov 15 01:02:03 n1 kernel: [  12.345678] python[8]: segfault at",
        {"host": "n1", "pid": None},
        "python[8]: segfault at",
    ),
    ("[  12.345678] python[8]: segfault at", {"pid": None}, "python[8]: segfault at"),
    ("2026-11-15T01:02:03+0000 n1 kernel: NVRM", {"host": "n1", "at": 1794704523.0}, "NVRM"),
    ("worker-1  | hi", {"host": "worker-1"}, "hi"),
    ("[pod/train-0/pytorch] hi", {"host": "train-0"}, "hi"),
    ("2026-11-15T01:02:03.4Z stderr F hello", {"at": 1794704523.4}, "hello"),
    (
        "E1115 01:02:03.456000 4711 torch/distributed/elastic/multiprocessing/api.py:874] failed",
        {"pid": 4711, "rank": None},
        "failed",
    ),
    (
        "[2026-03-02 20:28:05,674] torch.distributed.elastic.multiprocessing.api: [ERROR] failed",
        {"rank": None},
        "failed",
    ),
    ("[2026-03-02 20:28:05,674] [INFO] [launch.py:319:f] Killing", {}, "Killing"),
    ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exit", {}, "failed (exit"),
    ("03/02/2026 20:28:05 - INFO - root - hi", {}, "hi"),
    ("Nov 15 01:02:03.123456 n1 python[8]: hi", {"host": "n1", "pid": 8}, "hi"),
    ("Sun 2026-11-15 01:02:03 UTC n1 kernel: hi", {"host": "n1", "at": 1794704523.0}, "hi"),
    ('time="2026-11-15T01:02:03Z" level=error msg="hi" job=x', {"at": 1794704523.0}, 'hi" job=x'),
    ("2026-11-15T01:02:03.0+00:00 WARN [torchft::lighthouse] hi", {"at": 1794704523.0}, "hi"),
    ("2026-11-15T01:02:03.0Z  INFO torchft::lighthouse: src/lighthouse.rs:88: hi", {}, "hi"),
    ("[titan] 2026-11-15 01:02:03,0 - root - INFO - hi", {"at": 1794704523.0}, "hi"),
    ("[INFO|trainer.py:12] 2026-11-15 01:02:03,0 >> hi", {"at": 1794704523.0}, "hi"),
    (
        "2026-11-15 01:02:03,0 [WARNING] [n1] [workload:3(1) infra:3(1)] launcher.py:8 hi",
        {"host": "n1", "rank": 3, "local_rank": 1},
        "hi",
    ),
    (
        "2026-11-15 01:02:03,0 [INFO] [n1] [workload:?(?) infra:?(?)] a.py:8 hi",
        {"rank": None},
        "hi",
    ),
    (
        "2026-11-15 01:02:03,0: rank3[1011][MainThread]: ERROR: composer.trainer: hi",
        {"rank": 3, "pid": 1011},
        "hi",
    ),
    ("[1,mpirank:3,algo-1]<stderr>:hi", {"rank": 3, "host": "algo-1"}, "hi"),
    ("[RANK 3] hi", {"rank": 3}, "hi"),
    ("[rank=3] hi", {"rank": 3}, "hi"),
    (
        f"Epoch 3: 240it [05:55,  1.47s/it][rank0]:{GLOG} [Rank 0] x",
        {"rank": 0},
        "[Rank 0] x",
    ),
]


@pytest.mark.parametrize(("raw", "told", "text"), LINES, ids=lambda v: str(v)[:30])
def test_who_wrote_it(raw: str, told: dict[str, object], text: str | None) -> None:
    found = head(raw)
    assert {name: getattr(found, name) for name in told} == told
    assert text is None or found.text == text


@pytest.mark.parametrize(
    "raw",
    [
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "srun: error: node7: task 3: Killed",
        "12: a line of a listing",
        "node7: a line that may be anything",
        "[1] 4711 started",
        "RuntimeError: [Rank 3] is not here at the beginning",
    ],
)
def test_ordinary_lines_have_no_head(raw: str) -> None:
    found = head(raw)
    assert (found.text, found.rank, found.local_rank, found.host) == (raw, None, None, "")


def test_bare_labels_count_when_the_whole_file_has_them() -> None:
    srun = line_prefix.grammar_of([f"{n % 4}: step {n}" for n in range(20)])
    assert head("3: Traceback", srun).rank == 3
    pdsh = line_prefix.grammar_of([f"node{n % 2}: step {n}" for n in range(20)])
    assert (head("node1: [default0]:x", pdsh).host, head("node1: [default0]:x", pdsh).text) == (
        "node1",
        "x",
    )


@pytest.mark.parametrize("line", ["loss: 0.5", "INFO: hello", "ValueError: 3", "step 3"])
def test_ordinary_labels_are_not_hosts(line: str) -> None:
    assert line_prefix.grammar_of([line] * 20) == line_prefix.PLAIN


def test_a_listing_that_was_pasted_with_blanks_before_it_loses_them() -> None:
    lines = ["    [rank1]: Traceback", "      File", "", "    ValueError: x"]
    grammar = line_prefix.grammar_of(lines)
    assert [head(line, grammar).text for line in lines] == [
        "Traceback",
        "  File",
        "",
        "ValueError: x",
    ]
    assert head("ValueError: x", grammar).text == "ValueError: x"
    assert line_prefix.grammar_of(["    one line"]) == line_prefix.PLAIN


def test_a_date_without_year_takes_that_of_the_file() -> None:
    grammar = line_prefix.grammar_of(["2026-11-15 01:00:00 start"])
    assert head(f"[rank0]:{GLOG} x", grammar).at == pytest.approx(1794704595.143)


_PIECES = st.sampled_from(
    [
        "[rank3]:",
        "[rank",
        "]",
        ":",
        " ",
        GLOG,
        "1,2",
        "<stderr>",
        "2026-03-02 20:28:05",
        "node1:",
        "[default0]:",
        "(a pid=3",
        ")",
        "9" * 30,
        "Nov 31 25:61:61 h k: ",
        "\t",
        "é",
        "99/99/9999 ",
    ]
)


@given(st.lists(_PIECES | st.text(max_size=5), max_size=12).map("".join), st.booleans())
def test_any_line_gives_a_suffix(raw: str, bare: bool) -> None:
    found = head(raw, Grammar(bare_ranks=bare, hosts=frozenset({"node1"})))
    assert raw.endswith(found.text)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["n1:0: [rank0]: a", "n1:1: b", "W1116 00:00:00.1 7 x.py:1] c"], "rank"),
        (["n1:0: [rank0]: a", "n2:0: [rank4]: b"], "local_rank"),
        (["n1:0: a", "n1:1: b", "n2:2: c"], "rank"),  # all lines have it, and 0 to 2 are ranks
        (["n1:0: a", "n1:1: b", "c", "d", "e"], ""),
        (["train.c:1: a", "train.c:0: b"], ""),
        (["x:12: a", "x:44: b"], ""),
        (["vm:12:34 [0] NCCL INFO x", "vm:12:35 [1] NCCL INFO x"], ""),
    ],
)
def test_what_a_template_of_torchruns_puts_before_lines(lines: list[str], expected: str) -> None:
    assert line_prefix.grammar_of(lines).host_and == expected


def test_a_host_and_a_rank_before_torchs_own_prefix() -> None:
    found = head("n1:3: [rank3]: boo", Grammar(host_and="rank"))
    assert (found.host, found.rank, found.text) == ("n1", 3, "boo")
    assert head("n1:3: ", Grammar(host_and="local_rank")).local_rank == 3
