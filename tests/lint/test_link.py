"""Which launch starts which script, and where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.analysis.source.source import Flag, HostSlots, Launch, Source, SourceKind
from holdfast.findings import Place
from holdfast.lint import link

HERE = Place(file="launch.sh", line=3)


def launch(script: str, *flags: Flag) -> Launch:
    return Launch(kind="torchrun", flags=flags, place=HERE, script=script)


def launch_script(*launches: Launch, file: str, complete: bool = True) -> Source:
    return Source(file=file, kind=SourceKind.SHELL, launches=launches, complete=complete)


@pytest.mark.parametrize(
    ("written", "launch_file", "script", "others"),
    [
        ("train.py", "jobs/launch.sh", "jobs/train.py", ["train.py"]),
        ("../train.py", "jobs/launch.sh", "train.py", []),
        ("train.py", "jobs/launch.sh", "train.py", ["other/x.py"]),
        ("./src/train.py", "launch.sh", "src/train.py", ["train.py"]),
        ("/workspace/train.py", "launch.sh", "src/train.py", []),
        ("pkg.train", "launch.sh", "pkg/train.py", ["train.py"]),
    ],
)
def test_found_by_path_then_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    written: str, launch_file: str, script: str, others: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    made = launch(written)
    links = link.LaunchLinks([launch_script(made, file=launch_file)], [script, *others])
    assert links.of(script) == (made,)
    assert [links.of(other) for other in others] == [()] * len(others)


def test_two_files_of_one_name_are_not_guessed_between(tmp_path: Path) -> None:
    scripts = [str(tmp_path / "a" / "train.py"), str(tmp_path / "b" / "train.py")]
    links = link.LaunchLinks([launch_script(launch("/w/train.py"), file="l.sh")], scripts)
    assert [links.of(script) for script in scripts] == [(), ()]


def test_a_document_only_shows_how_it_might_be_started() -> None:
    links = link.LaunchLinks(
        [launch_script(launch("train.py"), file="README.md", complete=False)], ["train.py"]
    )
    assert links.of("train.py") == ()


def test_the_hosts_of_a_hostfile_come_to_the_launch_that_names_it() -> None:
    named = Flag(name="hostfile", value="./hosts/all", place=HERE)
    hosts = (HostSlots(name="a", slots=8, place=Place(file="hosts/all", line=1)),)
    hostfile = Source(
        file=os.path.join("jobs", "hosts", "all"), kind=SourceKind.HOSTFILE, hosts=hosts
    )
    started = launch_script(launch("train.py", named), launch("train.py"), file="jobs/launch.sh")
    linked = link.with_hosts([hostfile, started])
    assert [one.hosts for one in linked[1].launches] == [hosts, ()]
    assert link.with_hosts([started]) == [started]
