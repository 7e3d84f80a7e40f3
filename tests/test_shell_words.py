from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import shell_words


@given(st.text())
def test_a_value_is_one_word_or_left_out(value: str) -> None:
    made = shell_words.command("ls -l {}", value)
    assert made == "" or shlex.split(made) == ["ls", "-l", value]
    assert shlex.split(shell_words.word(value, "FILE")) in ([value], ["FILE"])
    assert "`" not in made


@pytest.mark.parametrize("value", ["node-b", "/ckpts/a b$(id).pt", "it's", "mlx5_0:1", "ärger"])
def test_ordinary_values_stay(value: str) -> None:
    assert shlex.split(shell_words.command("ls -l {0} {0}", value)) == ["ls", "-l", value, value]


@pytest.mark.parametrize("value", ["", "-rf", "a`id`", "a\nb", "a\u202eb", "a\u200bb", "x" * 401])
def test_what_cannot_be_pasted_is_left_out(value: str) -> None:
    assert shell_words.command("rm {}", value) == ""
    assert shell_words.word(value, "FILE") == "FILE"


@pytest.mark.parametrize(
    ("name", "value", "made"),
    [
        ("NCCL_ALGO", "Tree", "NCCL_ALGO=Tree"),
        ("NCCL_SOCKET_IFNAME", "=eth0", "NCCL_SOCKET_IFNAME==eth0"),
        ("A", "-x y", "A='-x y'"),
        ("A", "$(id)", "A='$(id)'"),
        ("A", "", "A="),
        ("A", "a\nb", "A=VALUE"),
        ("A;id", "b", "NAME=b"),
    ],
)
def test_settings(name: str, value: str, made: str) -> None:
    assert shell_words.setting(name, value) == made
