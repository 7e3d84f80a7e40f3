"""What a script puts into the environment, however it is written."""

from __future__ import annotations

import pytest

from holdfast.analysis.source.source import SourceSetting
from holdfast.lint.readers import python


def settings(text: str) -> tuple[SourceSetting, ...]:
    return python.read(f"import os, subprocess\n{text}\n", "train.py").settings


@pytest.mark.parametrize(
    "text",
    [
        'os.environ["NCCL_DEBUG"] = "INFO"',
        'os.environ.setdefault("NCCL_DEBUG", "INFO")',
        'os.putenv("NCCL_DEBUG", "INFO")',
        'os.environ.update({"NCCL_DEBUG": "INFO"})',
        'os.environ.update(NCCL_DEBUG="INFO")',
        'os.environ |= {"NCCL_DEBUG": "INFO"}',
        'env = dict(os.environ, NCCL_DEBUG="INFO")',
        'env = {**os.environ, "NCCL_DEBUG": "INFO"}',
        'env = os.environ.copy()\nenv["NCCL_DEBUG"] = "INFO"',
        'env = dict(os.environ)\nenv.update(NCCL_DEBUG="INFO")',
        'subprocess.run(["x"], env={**os.environ, "NCCL_DEBUG": "INFO"})',
        'subprocess.Popen(["x"], env={"NCCL_DEBUG": "INFO"})',
        'from os import environ\nenviron["NCCL_DEBUG"] = "INFO"',
        'def f():\n    if True:\n        os.environ["NCCL_DEBUG"] = "INFO"',
    ],
)
def test_every_way_is_seen_once(text: str) -> None:
    (found,) = settings(text)
    assert (found.name, found.value, found.known, found.by) == (
        "NCCL_DEBUG", "INFO", True, "os.environ",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["port", 'f"{port}"', "str(port)", 'args["port"]', "None"])
def test_a_value_of_the_run_is_unknown(text: str) -> None:
    (found,) = settings(f'os.environ["MASTER_PORT"] = {text}')
    assert not found.known
    assert found.written == text.replace('"', "'")


def test_numbers_and_places() -> None:
    found = settings('os.environ["A"] = str(1)\nx = 2\nos.environ["B"] = "2"; del os.environ["A"]')
    assert [(s.name, s.value, s.by, s.place.line, s.place.column) for s in found] == [
        ("A", "1", "os.environ", 2, 12),
        ("B", "2", "os.environ", 4, 12),
        ("A", "", "unset", 4, 39),
    ]


@pytest.mark.parametrize(
    "text",
    [
        'other["NCCL_DEBUG"] = "INFO"',
        'config = {"NCCL_DEBUG": "INFO"}',
        'os.environ[name] = "INFO"',
        'print(os.environ["NCCL_DEBUG"])',
        'run(environment={"NCCL_DEBUG": "INFO"})',
    ],
)
def test_what_sets_nothing(text: str) -> None:
    assert settings(text) == ()


def test_what_the_script_itself_asks_for() -> None:
    text = """
import os
a = os.environ["NCCL_A"]
b = os.environ.get("NCCL_B", "0")
c = os.getenv("NCCL_C")
if "NCCL_D" in os.environ:
    os.environ["NCCL_E"] = "1"
"""
    assert python.read(text, "x.py").reads == {"NCCL_A", "NCCL_B", "NCCL_C", "NCCL_D"}
