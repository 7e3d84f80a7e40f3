"""The tool that compares the tables of variables with a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.analysis.variables.table import Tables, parse
from tools import refresh_variables

TABLE = parse(
    [
        "# reader: NCCL",
        "# version: NCCL 2.30.7",
        "# prefixes: NCCL_",
        "NCCL_DEBUG\t\t\t\twhat it logs",
        "NCCL_GONE\t\t\t\tread by this version, the table says",
        "NCCL_OLD\t\tuntil 2.4\t\tread by older versions",
        "NCCL_PLUGIN_*\t\t\t\ta family",
    ]
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "init.cc").write_text(
        '#define NCCL_MACRO 1\nNCCL_PARAM(NewThing, "NEW_THING", 0);\n'
        'ncclGetEnv("NCCL_DEBUG"); ncclGetEnv("NCCL_PLUGIN_A");'
    )
    (tmp_path / "libnccl.so.2").write_bytes(b"\0NCCL_IN_LIBRARY\0MY_NCCL_OTHER\0")
    (tmp_path / "picture.png").write_bytes(b"NCCL_IN_PICTURE")
    return tmp_path


def test_it_says_what_the_table_and_the_program_lack(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refresh_variables.compare(TABLE, "NCCL", [checkout]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "not in the table: NCCL_IN_LIBRARY",
        "not in the table: NCCL_NEW_THING",
        "not in the program: NCCL_GONE",
    ]


def test_a_table_that_agrees_is_fine(tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text('getenv("NCCL_DEBUG"); getenv("NCCL_GONE")')
    assert refresh_variables.compare(TABLE, "NCCL", [tmp_path]) == 0


def test_without_a_program_only_the_form_is_looked_at(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refresh_variables.main([]) == 0
    assert "well formed" in capsys.readouterr().out

    def broken() -> Tables:
        raise ValueError("NCCL_X: state 'gone' …")

    monkeypatch.setattr(refresh_variables, "tables", broken)
    assert refresh_variables.main([]) == 2
    assert "NCCL_X" in capsys.readouterr().out
