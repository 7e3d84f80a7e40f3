"""What the kernel said in the last day about GPUs, memory and stalls."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.analysis.machine import KernelEvent, Plan, Unread
from holdfast.text import shorten

WINDOW = 24 * 3600.0
MOST_EVENTS = 64
LONGEST_TEXT = 300
JOURNAL_LINES = 2000
JOURNAL_SECONDS = 0.5

_KINDS = {
    "xid": re.compile(r"NVRM: Xid \("),
    "sxid": re.compile(r"SXid \(PCI:[^)]*\): \d+, (?:Non-)?[Ff]atal"),
    "gpu": re.compile(r"NVRM: .*(?:RmInitAdapter failed|fallen off the bus)"),
    "oom": re.compile(r"(?:Out of memory|Memory cgroup out of memory): Kill|^oom-kill:"),
    "stall": re.compile(
        r"blocked for more than \d+ seconds|rcu: INFO: .*stall|soft lockup"
        r"|nfs: server .* not responding"
    ),
}
_KILLED = re.compile(r"Killed? process (\d+)")
_ABOUT_TO_KILL = re.compile(r"^oom-kill:.*\bpid=(\d+)")
_DEVICE = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}")
_WHAT = re.compile(r"\): (\d+).*?(Non-?fatal|$)", re.IGNORECASE)
_JOURNALLED = re.compile(r"\[\s*(\d+)\.(\d{6})\] \S+ kernel: (.*)")
_SERVER = re.compile(r"nfs: server (\S+) (not responding|OK)")


def read_kernel_log(plan: Plan, path: str = "/dev/kmsg") -> tuple[KernelEvent, ...] | Unread:  # noqa: ARG001
    # Its clock is the one of the stamps: since boot, and not counting suspended time.
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    try:
        return parse(_lines(path), now)
    except PermissionError:
        records = journal_records(_journal())
        if records:
            return parse(records, now)
        return Unread(why="kernel log is not readable by this user (dmesg_restrict)")
    except FileNotFoundError:
        return Unread(why=f"kernel log is not here: there is no {path} (a container has none)")


def _journal() -> str:
    """The journal's copy, which cloud images let their first user read (groups adm and
    systemd-journal) though not the kernel's own. '' where it has no line of the kernel's for this
    user: a boot leaves hundreds, so it may not read them."""
    program = shutil.which("journalctl")
    if program is None:
        return ""
    command = [program, "--dmesg", "--boot", "--quiet", "--no-pager", "--output=short-monotonic"]
    try:
        done = subprocess.run(
            [*command, f"--lines={JOURNAL_LINES}"],
            capture_output=True,
            timeout=JOURNAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def journal_records(output: str) -> list[str]:
    """Lines of the journal ('[  12.345678] host kernel: text') as records of /dev/kmsg."""
    found = map(_JOURNALLED.match, output.splitlines())
    return [f"4,0,{one[1]}{one[2]},-;{one[3]}" for one in found if one]


def _lines(path: str) -> Iterator[str]:
    """Every record of the ring; each read gives one, and 'would block' is its end."""
    ring = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while record := _next_record(ring):
            yield from record.decode(errors="replace").split("\n")
    finally:
        os.close(ring)


def _next_record(ring: int) -> bytes:
    try:
        return os.read(ring, 1 << 16)
    except BlockingIOError:
        return b""
    except BrokenPipeError:
        return b"\n"  # overwritten while we read it: the next read continues


def parse(lines: Iterable[str], now: float) -> tuple[KernelEvent, ...]:
    """Events out of kmsg records ('priority,sequence,microseconds,flags;text'), oldest first."""
    events: deque[KernelEvent] = deque(maxlen=MOST_EVENTS)
    of_devices: dict[tuple[str, ...], KernelEvent] = {}
    for line in lines:
        head, separator, text = line.partition(";")
        if not separator or line.startswith(" "):
            continue  # ' KEY=value' lines belong to the record before
        ago = _seconds_ago(head, now)
        if ago is not None and ago > WINDOW:
            continue
        if (server := _SERVER.search(text)) and server[2] == "OK":
            _forget_server(events, server[1])
        kind = next((k for k, pattern in _KINDS.items() if pattern.search(text)), "")
        if not kind:
            continue
        event = KernelEvent(kind=kind, text=_plain(text), seconds_ago=ago)
        if kind in ("xid", "sxid", "gpu"):
            _count(of_devices, event)
        else:
            events.append(event)
    return (*list(of_devices.values())[-MOST_EVENTS:], *_without_doubles(events))


def _count(seen: dict[tuple[str, ...], KernelEvent], event: KernelEvent) -> None:
    """A device in trouble reports the same thousands of times: one event, with the last text. The
    first place in the order is kept: it tells causes from what followed."""
    device, what = _DEVICE.search(event.text), _WHAT.search(event.text)
    key = (event.kind, device[0] if device else "", *(what.groups() if what else ()))
    before = seen.get(key)
    count = before.count + 1 if before else 1
    seen[key] = msgspec.structs.replace(event, count=count)


def _seconds_ago(head: str, now: float) -> float | None:
    with contextlib.suppress(ValueError, IndexError, OverflowError):
        return max(0.0, now - int(head.split(",")[2]) / 1e6)
    return None


def _plain(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text).strip()
    return shorten(printable, LONGEST_TEXT)


def _forget_server(events: deque[KernelEvent], name: str) -> None:
    """An NFS server that answered again is no stall any more."""
    kept = [e for e in events if not ((s := _SERVER.search(e.text)) and s[1] == name)]
    events.clear()
    events.extend(kept)


def _without_doubles(events: Iterable[KernelEvent]) -> tuple[KernelEvent, ...]:
    """One kill has two lines, 'oom-kill:…pid=N' and 'Killed process N': keep the second."""
    events = list(events)
    killed = {found[1] for e in events if (found := _KILLED.search(e.text))}
    return tuple(
        e for e in events if not ((plan := _ABOUT_TO_KILL.search(e.text)) and plan[1] in killed)
    )
