"""A service of this machine, by whatever shows it: systemd, else its process, else its files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.machine import ServiceState, Unread
from holdfast.system import proc
from holdfast.text import shorten

SECONDS = 0.5
"""for one command; each of them takes milliseconds where it works"""
LONGEST_NAME = 15
"""characters that the kernel keeps of a process's name"""
LONGEST_RESULT = 200
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
WANTED = "LoadState,ActiveState,Result,MainPID,ActiveEnterTimestampMonotonic"
HIDDEN = Unread(why="services of the machine are not visible from this container")
RESTRICTED = Unread(why="processes of other users are hidden from this user (hidepid)")

_VERSION = re.compile(r"version\D{0,8}(\d+(?:\.\d+)+)", re.IGNORECASE)
_TROUBLE = re.compile(r"error|fail|mismatch|don't match|NV_WARN", re.IGNORECASE)


class Service(NamedTuple):
    """How it is called in each of the places where it shows."""

    unit: str
    program: str
    log: str
    """its own log file"""


def look(*services: Service, root: str = "/") -> list[ServiceState | Unread]:
    """Nothing is started but `systemctl show`, `journalctl` and the program's `--version`."""
    table = proc.process_table()
    return [_look_at(service, table, root) for service in services]


def _look_at(
    service: Service, table: Mapping[int, proc.ProcessRow], root: str
) -> ServiceState | Unread:
    pid = next((p for p, r in table.items() if r.name == service.program[:LONGEST_NAME]), None)
    version = _version(service.program)
    if os.path.isdir(os.path.join(root, "run/systemd/system")):
        shown = _shown_by_systemd(service.unit)
        if shown:
            found = _of_systemd(service, shown, root)
            # The driver may be in a container of its own, and the service with it; and a unit fails
            # where the program was started by hand before.
            if found.state in ("active", "activating") or pid is None:
                return msgspec.structs.replace(found, pid=found.pid or pid, version=version)
    if pid is not None:
        return ServiceState(
            state="active",
            sign=f"process {pid} {service.program}",
            pid=pid,
            version=version,
            up_seconds=_age(table[pid]),
        )
    return _without_process(service, list(table), version, root)


def _without_process(
    service: Service, visible: list[int], version: str, root: str
) -> ServiceState | Unread:
    if not proc.shows_whole_machine(root):
        return HIDDEN
    if proc.is_restricted(visible):
        return RESTRICTED
    unit = _unit_file(service.unit, root)
    if not unit and not shutil.which(service.program):
        return ServiceState(state="not installed", sign=f"no program {service.program}")
    return ServiceState(
        state="inactive",
        sign=f"no process {service.program}",
        version=version,
        result=_last_trouble(service, root),
    )


def _unit_file(unit: str, root: str) -> str:
    paths = (f"{folder}/{unit}.service" for folder in UNIT_FOLDERS)
    return next((p for p in paths if os.path.exists(os.path.join(root, p.lstrip("/")))), "")


# --- systemd -------------------------------------------------------------------------------------


def _shown_by_systemd(unit: str) -> dict[str, str]:
    """{} when there is no answer."""
    lines = _output(["systemctl", "show", f"{unit}.service", f"--property={WANTED}"])
    pairs = (line.partition("=") for line in lines.splitlines())
    return {name: value for name, equals, value in pairs if equals}


def _of_systemd(service: Service, shown: Mapping[str, str], root: str) -> ServiceState:
    state = shown.get("ActiveState", "")
    if shown.get("LoadState") == "not-found" and state != "active":
        return ServiceState(state="not installed", sign="systemctl: LoadState=not-found")
    return ServiceState(
        state=state or "unknown",
        sign=f"systemctl: ActiveState={state}",
        pid=int(shown["MainPID"]) or None if shown.get("MainPID", "").isdecimal() else None,
        result=_result(service, shown, root) if state != "active" else "",
        up_seconds=_since(shown.get("ActiveEnterTimestampMonotonic", "")),
    )


def _result(service: Service, shown: Mapping[str, str], root: str) -> str:
    """Its own words where they can be read, else systemd's."""
    if shown.get("LoadState") == "masked":
        return "masked"
    if shown.get("ActiveState") != "failed":
        return ""
    return _last_trouble(service, root) or shown.get("Result", "")


def _since(microseconds: str) -> float | None:
    """systemd counts on the clock that stops while the machine is suspended."""
    if not microseconds.isdecimal() or not int(microseconds):
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - int(microseconds) / 1e6)


# --- the program and its log ---------------------------------------------------------------------


def _version(program: str) -> str:
    """What `PROGRAM --version` prints: 'Fabric Manager version is : 580.95.05'."""
    path = shutil.which(program)
    found = _VERSION.search(_output([path, "--version"])) if path else None
    return found[1] if found else ""


def _last_trouble(service: Service, root: str) -> str:
    """The last line in its log that reports a failure; '' where no log can be read."""
    log = _tail(os.path.join(root, service.log.lstrip("/"))) or _output(
        ["journalctl", "-u", service.unit, "-n", "40", "-o", "cat", "--no-pager"]
    )
    told = [line.strip() for line in log.splitlines() if _TROUBLE.search(line)]
    # systemd's own lines ('Failed with result') come last and say less than the program's.
    own = [line for line in told if service.unit not in line] or told
    plain = "".join(c if c.isprintable() else " " for c in own[-1]) if own else ""
    return shorten(plain, LONGEST_RESULT)


def _tail(path: str, size: int = 1 << 14) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""


def _age(row: proc.ProcessRow) -> float:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, now - row.started / os.sysconf("SC_CLK_TCK"))


def _output(command: Sequence[str]) -> str:
    """What it prints; '' when it is not there, fails, or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode(errors="replace") if done.returncode == 0 else ""
