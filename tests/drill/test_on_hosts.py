"""A job's launchers on lab hosts, with a shell in place of the launcher: no torch."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import LoseHost
from holdfast.drill import marked_processes, on_hosts
from holdfast.drill.job import DrillJob
from holdfast.drill.lab import Lab
from holdfast.drill.launching import JobCommand
from holdfast.drill.layout import JobFolder
from holdfast.drill.runners import screens
from holdfast.drill.runners.runner import HeardOfRunner, ToStart
from holdfast.drill.stage import Stage
from holdfast.errors import ConfigError
from tests.drill.acts.lab_scene import a_rehearsal
from tests.drill.lab.fixture import lab_or_skip

HOSTS = ("alpha", "bravo")


class Shell:
    """Each host says who it is, leaves a file in shared memory, and ends by itself."""

    name = "shell"

    def __init__(self, script: str) -> None:
        self._script = script

    def command(self, start: ToStart) -> list[str]:
        return ["sh", "-c", self._script, "shell", *start.options]

    def heard(self, folder: JobFolder) -> HeardOfRunner:
        return HeardOfRunner(spoken=tuple(screens.named(folder)))


def a_stage(folder: Path) -> Stage:
    return Stage(a_rehearsal(HOSTS, at_step=0), JobFolder(folder / "job").make(), checkpoints=None)


def environment_of(stage: Stage) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], marked_processes.MARK: str(stage.folder.witness)}


@pytest.mark.parametrize(
    ("runner", "host", "typed"),
    [
        ("holdfast", "bravo", ["--lease", "7"]),
        ("torchrun", "bravo", ["--local-addr", "10.77.0.2", "--rdzv-conf", "is_host=0"]),
        ("torchrun", "alpha", ["--local-addr", "10.77.0.1", "--rdzv-conf", "is_host=1"]),
    ],
)
@pytest.mark.lab
def test_every_launcher_is_told_where_they_meet(
    lab: Lab, tmp_path: Path, runner: str, host: str, typed: list[str]
) -> None:
    stage = a_stage(tmp_path)
    stage.hosts = {name: lab.host(name) for name in HOSTS}
    meet = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "drill"]
    meet += ["--rdzv-endpoint", "alpha:29400"]
    assert on_hosts.meeting_options(stage, host, runner) == [*meet, *typed]


def test_alone_they_meet_nowhere(tmp_path: Path) -> None:
    assert on_hosts.meeting_options(a_stage(tmp_path), "", "holdfast") == []


@pytest.mark.parametrize("typed", [["--nnodes", "2"], ["--rdzv_endpoint=a:1"], ["--standalone"]])
def test_where_they_meet_cannot_be_typed(typed: list[str]) -> None:
    with pytest.raises(ConfigError, match="cannot be combined with --hosts 2"):
        on_hosts.refuse(2, ["--nproc-per-node", "2", *typed])


def test_without_root_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="--hosts: a lab of several hosts needs root"):
        on_hosts.refuse(2, [])


SAYS_WHO_IT_IS = """
echo "$(uname -n) $(cat mark) $TOLD"
touch $TMPDIR/its-own
touch /dev/shm/left-$(uname -n)
"""


@pytest.mark.lab
def test_a_launcher_runs_on_every_host_and_what_it_leaves_is_found(tmp_path: Path) -> None:
    with lab_or_skip():
        pass
    stage = a_stage(tmp_path)
    with on_hosts.lab_hosts(HOSTS) as (stage.lab, stage.hosts):
        (stage.folder.work / "mark").write_text("shared")
        stage.environment = {**environment_of(stage), "TOLD": "all"}
        stage.environment_on = {"bravo": {"TOLD": "one"}}
        job = DrillJob(
            stage,
            JobCommand(Shell(SAYS_WHO_IT_IS), (), (), 1.0),
            None,
            longest=60.0,
            tell=lambda _: None,
        )
        seen = job.run()
    assert seen.exit_codes == (0,)
    assert {line.text for line in screens.lines(stage.folder)} == {
        "alpha shared all",
        "bravo shared one",
    }
    assert seen.left == ("alpha:/dev/shm/left-alpha", "bravo:/dev/shm/left-bravo")


NAMES_THE_OTHER = """
[ $(uname -n) = bravo ] && { test -e again || exec sleep 1000; exit 0; }
sleep 0.5; touch again
echo 'holdfast> verdict[HOLD705] node-lost: node bravo was lost'
sleep 2
"""


@pytest.mark.lab
def test_a_host_that_was_lost_is_started_again_once_it_is_named(tmp_path: Path) -> None:
    with lab_or_skip():
        pass
    stage = a_stage(tmp_path)
    injection = Injection(
        does="bravo loses power",
        act=LoseHost(host="bravo", power=True),
        then=Then.RESTARTS,
        slugs=("node-lost",),
        lifted=True,
    )
    with on_hosts.lab_hosts(HOSTS) as (stage.lab, stage.hosts):
        stage.environment = environment_of(stage)
        command = JobCommand(Shell(NAMES_THE_OTHER), (), (), 1.0)
        began = time.time()
        seen = DrillJob(stage, command, injection, longest=60.0, tell=lambda _: None).run()
    assert seen.exit_codes == (0,)  # of the launcher that was started again, too
    (said,) = seen.said
    assert (said.slug, said.kind, said.hosts) == ("node-lost", "verdict", ("bravo",))
    assert seen.injected is not None
    assert seen.lifted is not None
    assert began < seen.injected < said.t < seen.lifted
