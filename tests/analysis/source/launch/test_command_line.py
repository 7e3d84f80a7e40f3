"""Counts, endpoints and words of a command line."""

from __future__ import annotations

import pytest

from holdfast.analysis.source.launch import command_line
from tests.analysis.source.made_sources import shell


@pytest.mark.parametrize(
    ("nnodes", "count"),
    [("2", (2, 2)), ("1:4", (1, 4)), ("$N", None), ("two", None), ("2:", (2, 2)), ("-1", None)],
)
def test_nodes(nnodes: str, count: tuple[int, int] | None) -> None:
    (launch,) = shell(f"torchrun --nnodes={nnodes} train.py").launches
    assert command_line.nodes(launch) == count


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("host:29400", ("host", 29400)),
        ("[::1]:29400", ("::1", 29400)),
        ("::1", ("::1", None)),
        ("host", ("host", None)),
        ("host:", ("host:", None)),
    ],
)
def test_endpoint(text: str, parts: tuple[str, int | None]) -> None:
    assert command_line.endpoint(text) == parts


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("torchrun $ARGS train.py", True),
        ("torchrun --nnodes $N train.py", False),
        ("torchrun train.py $ARGS", False),
    ],
)
def test_options_behind_a_variable(text: str, *, hidden: bool) -> None:
    (launch,) = shell(text).launches
    assert command_line.hides_flags(launch) is hidden


def test_a_command_line_without_one_option() -> None:
    (launch,) = shell("torchrun --nnodes 2 --node-rank=1 'my train.py'").launches
    assert launch.command is not None
    words = list(launch.command.words)
    for name in ("nnodes", "node-rank"):
        flag = launch.flag(name)
        assert flag is not None
        words = command_line.without(words, flag)
    assert command_line.line(words) == "torchrun 'my train.py'"


def test_arguments_are_neither_options_nor_their_values() -> None:
    (command,) = shell("ssh -p 22 -v host -- -x").commands
    found = command_line.arguments(command.words, frozenset({"-p"}))
    assert [word.text for word in found] == ["host", "-x"]
