"""Running text: what of it is meant as code, and that each piece stands alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.source import Kind, Source
from holdfast.lint.readers import prose
from holdfast.lint.readers.blocks import Line


def read(text: str) -> list[Source]:
    return list(prose.read([Line(7, text)], "guide.md"))


def settings(text: str) -> list[tuple[str, str, int]]:
    found = [s for source in read(text) for s in source.settings]
    assert {(s.place.line, s.by) for s in found} <= {(7, "prose")}
    return [(s.name, s.value, s.place.column) for s in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Set NCCL_DEBUG=INFO.", [("NCCL_DEBUG", "INFO", 5)]),
        ("Set `NCCL_DEBUG=INFO`.", [("NCCL_DEBUG", "INFO", 6)]),
        ("Set ``NCCL_DEBUG=INFO``, then", [("NCCL_DEBUG", "INFO", 7)]),
        ("Set `export NCCL_DEBUG=INFO` first", [("NCCL_DEBUG", "INFO", 13)]),
        ("(NCCL_IB_DISABLE=1)", [("NCCL_IB_DISABLE", "1", 2)]),
        ("| x | run:<br/>`NCCL_IB_DISABLE=1` |", [("NCCL_IB_DISABLE", "1", 17)]),
        ("**NCCL_IB_DISABLE=1**", [("NCCL_IB_DISABLE", "1", 3)]),
        ("use NCCL_IB_HCA=mlx5_0:1,mlx5_1:1, always", [("NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1", 5)]),
        ("NCCL_SOCKET_IFNAME=^docker0,lo.", [("NCCL_SOCKET_IFNAME", "^docker0,lo", 1)]),
    ],
)
def test_settings_without_the_sentence_around_them(
    text: str, found: list[tuple[str, str, int]]
) -> None:
    assert settings(text) == found


@pytest.mark.parametrize("value", ["<iface>", "...", "…"])
def test_a_placeholder_is_no_value(value: str) -> None:
    (source,) = read(f"export NCCL_SOCKET_IFNAME={value} on all nodes")
    assert [s.known for s in source.settings] == [False]


@pytest.mark.parametrize(
    "text",
    [
        "Never set `NCCL_ASYNC_ERROR_HANDLING=1`.",
        "Do not use NCCL_IB_DISABLE=1 here.",
        "instead of `NCCL_BLOCKING_WAIT=1`, write",
        "`NCCL_BLOCKING_WAIT=1` is deprecated.",
        "NCCL_TIMEOUT=60 does nothing",
        "`NCCL_TIMEOUT=60` is read by nobody",
        "a `NCCL_DEBUG` without a value",
        "x=1 and PATH=/bin",
        "see https://example.org/?NCCL_DEBUG=1",
        "MY_NCCL_DEBUG=1",
        "`kill`, `torchrun` and `docker`",
        "torchrun restarts workers (deepspeed does not)",
    ],
)
def test_what_is_only_spoken_of(text: str) -> None:
    assert read(text) == []


def test_alternatives_never_meet() -> None:
    found = read("`NCCL_DEBUG=INFO` or NCCL_DEBUG=WARN (newer: `NCCL_DEBUG=TRACE`)")
    assert [[s.value for s in source.settings] for source in found] == [
        ["INFO"],
        ["TRACE"],
        ["WARN"],
    ]
    assert all(s.kind is Kind.PROSE and not s.complete for s in found)
    (together,) = read("run `NCCL_DEBUG=INFO NCCL_IB_DISABLE=1 torchrun train.py` now")
    assert [s.name for s in together.settings] == ["NCCL_DEBUG", "NCCL_IB_DISABLE"]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("Use `torchrun --nnodes=2 train.py`.", 6),
        ("start it (torchrun --nnodes 2 train.py) on each", 11),
        ("   $ torchrun --nnodes=2 train.py", 6),
        ("torchrun --nnodes=2 train.py", 1),
    ],
)
def test_launches(text: str, column: int) -> None:
    (source,) = read(text)
    (launch,) = source.launches
    assert (launch.kind, launch.script) == ("torchrun", "train.py")
    assert (launch.place.line, launch.place.column) == (7, column)


def test_tools_in_inline_code() -> None:
    (source,) = read("Clean up with `sudo pkill -f a b`.")
    assert [c.name for c in source.commands] == ["pkill"]


@given(st.text(alphabet="`$ (NCCL_DEBUG=1.…<>)\"'|torchrun-", max_size=80))
def test_what_is_found_is_written_there(text: str) -> None:
    for source in read(text):
        assert all(setting.name in text for setting in source.settings)
        assert all(command.name in text for command in source.commands)
