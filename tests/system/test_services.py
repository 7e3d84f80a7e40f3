"""Real processes and real commands; only `systemctl` itself is played, since tests run where
systemd is not the first process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.analysis.machine import ServiceState, Unread
from holdfast.system import proc, services
from holdfast.system.services import Service
from tests.check.readers.trees import plant

PROGRAM = f"hf-fabric-{os.getpid()}"
SERVICE = Service(unit="hf-fabric-unit", program=PROGRAM, log="/var/log/fabric.log")
LOG = """[INFO] Connected
[ERROR] fabric manager NVIDIA GPU driver interface version 580.95.05 don't match with driver version
[INFO] bye
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs are found first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def write(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def systemd(programs: Path, root: Path, **shown: str) -> str:
    """A machine whose systemd says this of the unit."""
    lines = "\n".join(f"echo {name}={value}" for name, value in shown.items())
    write(programs / "systemctl", f'[ "$2" = {SERVICE.unit}.service ] || exit 1\n{lines}')
    (root / "run/systemd/system").mkdir(parents=True)
    return str(root)


@pytest.fixture
def running(programs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the service's name, which is longer than the kernel keeps."""
    shutil.copy("/bin/sleep", programs / PROGRAM)
    with subprocess.Popen([str(programs / PROGRAM), "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def look(service: Service, root: str) -> ServiceState | Unread:
    (answer,) = services.look(service, root=root)
    return answer


def seen(answer: ServiceState | Unread) -> ServiceState:
    assert isinstance(answer, ServiceState), answer
    return answer


def test_what_systemd_says_is_taken(programs: Path, tmp_path: Path) -> None:
    write(programs / PROGRAM, "echo 'Fabric Manager version is : 580.95.05'")
    root = systemd(
        programs,
        tmp_path / "root",
        LoadState="loaded",
        ActiveState="active",
        Result="success",
        MainPID="812",
        ActiveEnterTimestampMonotonic="1000000",
    )
    found = seen(look(SERVICE, root))
    assert (found.state, found.pid, found.version) == ("active", 812, "580.95.05")
    assert found.sign == "systemctl: ActiveState=active"
    assert found.result == ""
    assert found.up_seconds is not None


def test_a_failed_one_is_told_in_its_own_words(programs: Path, tmp_path: Path) -> None:
    shown = {"LoadState": "loaded", "ActiveState": "failed", "Result": "exit-code"}
    root = systemd(programs, tmp_path / "root", **shown)
    write(programs / "journalctl", "exit 1")
    assert seen(look(SERVICE, root)).result == "exit-code"
    write(programs / "journalctl", f"echo 'error: nothing to do'; echo '{SERVICE.unit}: Failed'")
    assert seen(look(SERVICE, root)).result == "error: nothing to do"
    plant(tmp_path / "root", {SERVICE.log: LOG})
    found = seen(look(SERVICE, root))
    assert found.state == "failed"
    assert "don't match with driver version" in found.result


@pytest.mark.parametrize(
    ("shown", "state", "result"),
    [
        ({"LoadState": "not-found", "ActiveState": "inactive"}, "not installed", ""),
        ({"LoadState": "masked", "ActiveState": "inactive"}, "inactive", "masked"),
        ({"LoadState": "loaded", "ActiveState": "inactive"}, "inactive", ""),
        ({"LoadState": "loaded", "ActiveState": "activating"}, "activating", ""),
    ],
)
def test_states_of_a_unit(
    programs: Path, tmp_path: Path, shown: dict[str, str], state: str, result: str
) -> None:
    found = seen(look(SERVICE, systemd(programs, tmp_path / "root", **shown)))
    assert (found.state, found.result, found.pid) == (state, result, None)


def test_a_process_counts_where_its_unit_is_not_the_machines(
    programs: Path, tmp_path: Path, running: subprocess.Popen[bytes]
) -> None:
    """The driver is in a container of its own, and the service with it; or it was started by hand,
    and the unit failed because it was there already."""
    absent = {"LoadState": "not-found", "ActiveState": "inactive"}
    failed = {"LoadState": "loaded", "ActiveState": "failed", "Result": "exit-code"}
    for root in (
        str(tmp_path),
        systemd(programs, tmp_path / "absent", **absent),
        systemd(programs, tmp_path / "failed", **failed),
    ):
        found = seen(look(SERVICE, root))
        assert (found.state, found.pid) == ("active", running.pid)
        assert found.sign == f"process {running.pid} {PROGRAM}"


def test_a_container_does_not_show_the_machines_services(tmp_path: Path) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532201]")
    assert look(SERVICE, str(tmp_path)) == services.HIDDEN


def test_no_process_of_an_installed_program_is_inactive(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to(proc.FIRST_PID_NAMESPACE)
    assert seen(look(SERVICE, str(tmp_path))).state == "not installed"
    write(programs / PROGRAM, "echo 'IMEX version is: 570.133'")
    found = seen(look(SERVICE, str(tmp_path)))
    assert (found.state, found.version) == ("inactive", "570.133")


def test_a_command_that_hangs_is_given_up(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "SECONDS", 0.2)
    write(programs / PROGRAM, "exec sleep 600")
    root = systemd(programs, tmp_path / "root", LoadState="loaded", ActiveState="active")
    found = seen(look(SERVICE, root))
    assert (found.state, found.version) == ("active", "")
