"""One test host: own network, name, processes, /dev/shm, /run, hosts file and boot id.

Everything of a host is held by its first process, which ends when the pipe to the process that
built the lab closes; with it the kernel ends all processes of the host, and with the last of them
go interfaces, rules and mounts. Nothing has a name outside, so nothing can stay behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from holdfast.drill.lab import namespaces
from holdfast.drill.lab.clock import OFFSET, build_wall_clock
from holdfast.drill.lab.errors import LabError
from holdfast.drill.lab.interfaces import LabInterface, Network, port_name

# SIGCHLD ignored: the kernel reaps what processes of the host leave behind.
_FIRST_PROCESS = """
trap '' CHLD
mount -t proc proc /proc && mount --bind /run/lab/boot_id /proc/sys/kernel/random/boot_id \
    && echo ready
exec cat
"""


class Host:
    """Made by `Lab.host`. `address` is the first address of the first interface."""

    def __init__(self, name: str, hub: Network, boot_id: str | None = None) -> None:
        self.name = name
        self._hub = hub
        self.boot_id = boot_id or str(uuid.uuid4())
        self.interfaces: dict[str, LabInterface] = {}
        self.addresses: dict[str, tuple[str, ...]] = {}
        self.environment: dict[str, str] = {}
        self._own_names: dict[str, str] = {}
        self._firewall = ""
        self._crashed = False
        self._link_rules: list[str] = []
        namespaces.in_own_thread(self._build)
        self._pids = os.open(f"/proc/{self.pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.network = Network(self._namespace)

    def __repr__(self) -> str:
        return f"Host({self.name!r})"

    @property
    def address(self) -> str:
        return next(a for addresses in self.addresses.values() for a in addresses)

    @property
    def pid(self) -> int:
        """Of the first process, seen from outside."""
        return self._first.pid

    def outer_pid(self, inner: int) -> int:
        """The number outside of a process of this host; raises ProcessLookupError."""
        for outer, own in self._numbers_of_processes():
            if own == inner:
                return outer
        raise ProcessLookupError(f"host {self.name} has no process {inner}")

    def _numbers_of_processes(self) -> Iterator[tuple[int, int]]:
        """Outside and on the host, of every process of it."""
        here = os.fstat(self._pids).st_ino
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if os.stat(f"{entry.path}/ns/pid").st_ino == here:
                        status = Path(entry.path, "status").read_text()
                        yield int(entry.name), _numbers(status)[-1]

    def wait_until_ready(self) -> None:
        assert self._first.stdout is not None
        if self._first.stdout.readline() != b"ready\n":
            raise LabError(f"host {self.name} did not start")

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Sockets that this thread opens meanwhile, and processes it starts, are on the host's
        network. They stay there; name, hosts file and processes are still the test's own."""
        return namespaces.inside_network(self._namespace)

    def path(self, path: str) -> Path:
        """A file as the host sees it (/run, /dev/shm and /proc are its own), to read or write
        from outside."""
        return Path(f"/proc/{self.pid}/root{path}")

    def command(self, argv: list[str], cwd: str) -> list[str]:
        """The same command with the host's network, name and files."""
        places = (f"--{kind}=/proc/{self.pid}/ns/{short}" for kind, short in _ENTERED)
        # set inside: what they name (a library to be loaded) is the host's own file
        own = [f"{name}={value}" for name, value in self.environment.items()]
        return ["nsenter", *places, "env", "-C", cwd, "--", *own, *argv]

    @contextlib.contextmanager
    def children_inside(self) -> Iterator[None]:
        if self._crashed:
            raise LabError(f"host {self.name} is down")
        with namespaces.children_inside(self._pids):
            yield

    def resolves(self, name: str, address: str | None) -> None:
        """What this host's hosts file says of `name`; None: nothing."""
        self._own_names[name] = address or ""
        self.write_names(self._names)

    def resolves_as_before(self, name: str) -> None:
        self._own_names.pop(name, None)
        self.write_names(self._names)

    def write_names(self, names: dict[str, str]) -> None:
        self._names = names
        lines = [f"{a} {name}\n" for name, a in {**names, **self._own_names}.items() if a]
        self.path("/run/lab/hosts").write_text("".join([*_LOCAL_NAMES, *lines]))

    def firewall(self, *incoming: str, outgoing: tuple[str, ...] = ()) -> None:
        """Rules in nft's words, such as "tcp dport 29500 drop", in place of the earlier ones."""
        wanted = _chain("input", incoming) + _chain("output", outgoing)
        self._write_rules(wanted, self._link_rules)
        self._firewall = wanted

    def set_link_rules(self, rules: list[str]) -> None:
        if rules != self._link_rules:
            self._write_rules(self._firewall, rules)
            self._link_rules = rules

    def set_mtu(self, mtu: int, interface: str = "e0") -> None:
        self.network.set(interface, mtu=mtu)

    def route(self, to: str, *, via: str | None = None, interface: str | None = None) -> None:
        self.network.add_route(to, via, interface)

    def setting(self, name: str, value: object) -> None:
        """A sysctl of the network, such as `net.ipv4.ip_forward`."""
        with self.inside():
            Path("/proc/sys", *name.split(".")).write_text(str(value))

    def clock(self, seconds: int) -> None:
        """A wall clock that is so many seconds ahead (behind: negative), for processes started
        after the first call; a later call sets the clock of those that run as well."""
        if not self.environment:
            self.environment = build_wall_clock(self.path("/run/lab"))
        file = self.path(self.environment[OFFSET])
        with file.open("r+b") as offset:
            offset.write(seconds.to_bytes(8, sys.byteorder, signed=True))

    def cut(self) -> None:
        """Out go the cables: the host sees its carriers go, the others hear nothing from it."""
        self._set_ports("down")

    def restore(self) -> None:
        """After `cut`."""
        self._set_ports("up")

    def crash(self) -> None:
        """As if its power had failed: it goes silent, and all its processes end at once."""
        self.cut()
        self._first.kill()  # waited for in `close`: it ends after those whom the test waits for
        self._crashed = True

    def power_off(self) -> None:
        """As `crash`, but it can be used again after `restore`: nothing is left of its processes,
        nor of what they had in memory."""
        self.cut()
        self.kill_all()
        for entry in os.scandir(self.path("/dev/shm")):  # noqa: S108 - the host's own
            if entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)

    def kill_all(self) -> None:
        """Every process but the one that holds the host."""
        for outer, own in self._numbers_of_processes():
            if own != 1:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(outer, signal.SIGKILL)

    def end(self) -> None:
        assert self._first.stdin is not None
        self._first.stdin.close()

    def close(self) -> None:
        """After `end`, and after all processes that the test started here were waited for."""
        self._first.wait(30)
        assert self._first.stdout is not None
        self._first.stdout.close()
        self.network.close()
        os.close(self._namespace)
        os.close(self._pids)

    def _build(self) -> None:
        namespaces.unshare(namespaces.OF_A_HOST)
        self._namespace = namespaces.open_own("net")
        socket.sethostname(self.name)
        _build_mounts(self.boot_id)
        self._first = subprocess.Popen(
            ["sh", "-c", _FIRST_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def _set_ports(self, state: str) -> None:
        for interface in self.interfaces.values():
            if not interface.bridge:
                self._hub.set(port_name(self.name, interface.name), state=state)

    def _write_rules(self, firewall: str, link_rules: list[str]) -> None:
        with self.inside():
            replace_table("inet lab", firewall + _chain("lab", link_rules, hook="input"))


def replace_table(table: str, chains: str) -> None:
    """In one step: there is no moment without rules."""
    text = f"table {table}\ndelete table {table}\ntable {table} {{\n{chains}}}\n"
    done = subprocess.run(
        ["nft", "-f", "-"], input=text, capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode:
        raise LabError(f"nft: {done.stderr.strip()}\n{text}")


def _chain(name: str, rules: tuple[str, ...] | list[str], hook: str = "") -> str:
    head = f"type filter hook {hook or name} priority 0; policy accept;"
    return f"chain {name} {{\n{head}\n" + "".join(f"{rule}\n" for rule in rules) + "}\n"


def _numbers(status: str) -> list[int]:
    """A process has a number in each set of processes that it is in, the innermost last."""
    line = next((one for one in status.splitlines() if one.startswith("NSpid:")), "NSpid: 0")
    return [int(number) for number in line.split()[1:]]


_LOCAL_NAMES = ("127.0.0.1 localhost\n", "::1 localhost ip6-localhost\n")
_ENTERED = (("net", "net"), ("uts", "uts"), ("ipc", "ipc"), ("mount", "mnt"))


def _build_mounts(boot_id: str) -> None:
    """In the thread that has unshared them. The disk itself is shared by all hosts."""
    namespaces.mount("none", "/", flags=namespaces.MOUNT_RECURSIVE | namespaces.MOUNT_PRIVATE)
    namespaces.mount("tmpfs", "/run", "tmpfs")
    namespaces.mount("tmpfs", "/dev/shm", "tmpfs")  # noqa: S108 - the host's own
    os.mkdir("/run/lab")
    _mount_sys()
    for name, text, over in (("hosts", "", "/etc/hosts"), ("resolv", "", "/etc/resolv.conf"),
                             ("boot_id", f"{boot_id}\n", "")):  # fmt: skip
        Path("/run/lab", name).write_text(text)
        if over and os.path.exists(over):
            namespaces.mount(f"/run/lab/{name}", over, flags=namespaces.MOUNT_BIND)


def _mount_sys() -> None:
    """/sys/class/net shows the network of its mounter. Control groups are the machine's."""
    groups, kept = "/sys/fs/cgroup", "/run/lab/cgroup"
    bind = namespaces.MOUNT_BIND | namespaces.MOUNT_RECURSIVE
    os.mkdir(kept)
    namespaces.mount(groups, kept, flags=bind)
    namespaces.mount("sysfs", "/sys", "sysfs")
    namespaces.mount(kept, groups, flags=bind)
    namespaces.detach(kept)
