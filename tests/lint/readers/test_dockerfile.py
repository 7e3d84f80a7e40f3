"""Dockerfiles."""

from __future__ import annotations

from tests.analysis.source.made_sources import dockerfile


def test_environment_in_both_forms() -> None:
    source = dockerfile(
        """
        FROM image
        ENV A=1 B="x y" \\
            # why
            C=$HOME D=<iface>
        env OLD some words
        ARG E=1
        """
    )
    found = [(s.name, s.value, s.known, s.place.line, s.place.column) for s in source.settings]
    assert found == [
        ("A", "1", True, 2, 5),
        ("B", "x y", True, 2, 9),
        ("C", "$HOME", False, 4, 5),
        ("D", "<iface>", False, 4, 13),
        ("OLD", "some words", True, 5, 5),
    ]
    assert {setting.by for setting in source.settings} == {"ENV"}


def test_commands_in_all_forms() -> None:
    source = dockerfile(
        r"""
        FROM image AS base
        ENV A=1
        RUN --mount=type=cache,target=/x a && \
            # a comment

            b -x
        RUN <<EOF
        c
        EOF
        RUN ["bash", "-c", "d \"q\" && e"]
        FROM base
        ENTRYPOINT ["torchrun", "--standalone"]
        CMD ["train.py", "--lr", "1"]
        HEALTHCHECK CMD f
        """
    )
    places = [(one.name, one.place.line, one.place.column) for one in source.commands]
    assert places == [
        ("a", 3, 34),
        ("b", 6, 5),
        ("c", 8, 1),
        ("bash", 10, 7),
        ("d", 10, 21),
        ("e", 10, 32),
        ("torchrun", 12, 14),
    ]
    (launch,) = source.launches
    assert launch.script == "train.py"
    assert [setting.name for setting in launch.settings] == ["A"]


def test_a_new_stage_starts_with_no_settings() -> None:
    source = dockerfile("FROM a\nENV A=1\nFROM b\nRUN x\n")
    assert source.commands[0].settings == ()


def test_nothing_of_what_is_no_dockerfile() -> None:
    source = dockerfile("RUN <<EOF\nnever closed\nCMD [not json\n\n\\\n")
    assert source.settings == ()
