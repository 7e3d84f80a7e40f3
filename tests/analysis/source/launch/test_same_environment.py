"""Which settings one process finds: no two that exclude each other, and the last value of each."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.launch import same_environment
from holdfast.analysis.source.source import Source, SourceKind, SourceSetting
from holdfast.findings import Place
from tests.analysis.source.made_sources import python, shell


def groups(source: Source) -> set[str]:
    """Each group as text: 'A=1 B=2'."""
    return {" ".join(f"{s.name}={s.value}" for s in g) for g in same_environment.groups(source)}


def test_a_script_leaves_its_last_values() -> None:
    assert groups(shell("export A=1 B=1\nexport A=2\nunset B\nC=3")) == {"A=2"}


def test_a_prefix_is_for_its_command() -> None:
    assert groups(shell("export A=1\nB=2 python x.py\nC=3 python y.py")) == {
        "A=1",
        "A=1 B=2",
        "A=1 C=3",
    }


def test_a_launch_finds_what_was_set_before_it() -> None:
    assert "A=1" in groups(shell("export A=1\ntorchrun x.py\nexport B=2"))


def test_branches_are_kept_apart() -> None:
    text = "export A=1\nif t; then export B=1; elif u; then export B=2; else export C=1; fi"
    assert groups(shell(text)) == {"A=1", "A=1 B=1", "A=1 B=2", "A=1 C=1"}
    text = "case $x in a) export B=1;; *) export C=1;; esac"
    assert groups(shell(text)) == {"B=1", "C=1"}


def test_functions_are_kept_apart() -> None:
    assert groups(shell("f() { export B=1; }\ng() { export C=1; }")) == {"B=1", "C=1"}


def test_python_by_function_and_branch() -> None:
    source = python("""
        import os
        os.environ["A"] = "1"
        def f():
            os.environ["B"] = "1"
            if x:
                os.environ["C"] = "1"
            else:
                os.environ["C"] = "2"
        def g():
            os.environ.update(
                D="1",
                E="2",
            )
        match y:
            case 1:
                os.environ["F"] = "1"
            case _:
                os.environ["F"] = "2"
    """)
    assert groups(source) == {
        *("A=1", "A=1 B=1", "A=1 B=1 C=1", "A=1 B=1 C=2", "A=1 D=1 E=2", "A=1 F=1", "A=1 F=2")
    }


SETTINGS = st.builds(
    SourceSetting,
    name=st.sampled_from(string.ascii_uppercase[:4]),
    value=st.sampled_from("01"),
    place=st.builds(Place, file=st.just("x"), line=st.integers(1, 50)),
    exported=st.booleans(),
    by=st.sampled_from(["export", "unset", "prefix", "docker -e"]),
    arms=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1)), max_size=2).map(tuple),
)


@given(st.lists(SETTINGS, max_size=8))
def test_no_group_holds_a_name_twice_or_two_arms_of_one_fork(settings: list[SourceSetting]) -> None:
    source = Source(file="x", kind=SourceKind.SHELL, settings=tuple(settings))
    for group in same_environment.groups(source):
        assert len({s.name for s in group}) == len(group)
        assert all(s in settings and s.by != "unset" for s in group)
        arms = {arm for s in group for arm in s.arms}
        assert any(arms <= set(s.arms) for s in settings), "one path leads past all of them"
