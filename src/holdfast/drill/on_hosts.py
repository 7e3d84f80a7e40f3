"""A job of a drill on several lab hosts: a launcher on each, on one disk, as on a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence

from holdfast.drill.lab import Host, Lab, LabInterface, LabUnavailableError
from holdfast.drill.lab_stage import ENDPOINT_PORT
from holdfast.drill.stage import Stage
from holdfast.errors import ConfigError

MTU = 9000
"""so that a path can lose large packets; a smaller one loses none by size"""
TEMPORARY = "/run/tmp"
"""as TMPDIR: it is the host's own, as a machine's /tmp is, and goes with it"""
LEASE = "7"
"""seconds, where holdfast would wait longer for a host that may only be paused: here it is not"""
NOT_WITH_HOSTS = ("--nnodes", "--node-rank", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id",
                  "--rdzv-conf", "--master-addr", "--master-port", "--standalone",
                  "--local-addr", "--lease")  # fmt: skip
"""options by which nodes meet: the drill types them"""


def refuse(count: int, typed: Sequence[str]) -> None:
    """Before anything is started: raises ConfigError where no job can run on several hosts."""
    words = {word.partition("=")[0].replace("_", "-") for word in typed}
    if both := sorted(words & set(NOT_WITH_HOSTS)):
        raise ConfigError(
            f"{both[0]} cannot be combined with --hosts {count}: the drill types how the hosts meet"
        )
    with lab_hosts(()):
        pass


@contextlib.contextmanager
def lab_hosts(names: Sequence[str]) -> Iterator[tuple[Lab, dict[str, Host]]]:
    """Fresh ones for each job: they end, with all that is on them, when the drill does."""
    try:
        made = Lab()
    except LabUnavailableError as problem:
        raise ConfigError(
            f"--hosts: {problem}",
            hint="run it as root on a machine (not in a container) with nftables and util-linux, "
            "or leave --hosts out: drills on this machine alone need neither",
        ) from None
    with made as lab:
        hosts = {name: lab.host(name, [LabInterface(mtu=MTU)]) for name in names}
        for host in hosts.values():
            host.path(TEMPORARY).mkdir()
        yield lab, hosts


def meeting_options(stage: Stage, host: str, runner: str) -> list[str]:
    """How the launcher of that host finds the others; none for a job on this machine alone."""
    if not stage.hosts:
        return []
    first, *_ = names = stage.rehearsal.job.hosts
    settings = dict(stage.rendezvous)
    least = f"{stage.fewest_hosts}:" if stage.fewest_hosts else ""
    options = ["--nnodes", f"{least}{len(names)}", "--rdzv-backend", "c10d", "--rdzv-id", "drill",
               "--rdzv-endpoint", f"{first}:{ENDPOINT_PORT}"]  # fmt: skip
    if runner != "holdfast":  # torchrun does not find out by itself which node it is
        settings["is_host"] = str(int(host == first))
        options += ["--local-addr", stage.hosts[host].address]
    elif not stage.fewest_hosts:
        options += ["--lease", LEASE]
    if settings:
        options += ["--rdzv-conf", ",".join(f"{name}={value}" for name, value in settings.items())]
    return options


def environment_on(stage: Stage, host: str) -> dict[str, str]:
    """Of the launcher there, and of the ranks that it starts."""
    own = {"TMPDIR": TEMPORARY} if stage.hosts else {}
    return {**stage.environment, **own, **stage.environment_on.get(host, {})}


def start_on_host(stage: Stage, host: str, command: list[str]) -> subprocess.Popen[str]:
    assert stage.lab is not None
    outer: dict[str, str | None] = dict.fromkeys(os.environ)
    return stage.lab.start(
        stage.hosts[host], command, cwd=stage.folder.work,
        env={**outer, **environment_on(stage, host)},
        stderr=subprocess.STDOUT, errors="replace", start_new_session=True,
    )  # fmt: skip
