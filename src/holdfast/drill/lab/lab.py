"""Hosts and the hub that joins them."""

from __future__ import annotations

import contextlib
import os
import shutil
import string
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import combinations
from typing import Any

from holdfast.drill.lab import namespaces
from holdfast.drill.lab.errors import LabError, LabUnavailableError
from holdfast.drill.lab.host import Host, replace_table
from holdfast.drill.lab.interfaces import (
    SWITCH_MTU,
    LabInterface,
    Network,
    default_addresses,
    port_name,
)
from holdfast.drill.lab.links import Link


class Lab:
    """See drill/lab/__init__.py."""

    def __init__(self) -> None:
        _require_permission()
        self._hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str, str | None], Link] = {}
        self._switches: set[int] = set()
        self._started: list[subprocess.Popen[str]] = []
        self.hub = namespaces.in_own_thread(_new_hub)
        self._network = Network(self.hub)

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hosts(self, count: int, *, mtu: int = 1500, ipv6: bool = False) -> list[Host]:
        """Named a, b, c…, with one interface e0 each."""
        names = list(string.ascii_lowercase[:count])
        return self._add(names, (LabInterface(mtu=mtu),), ipv6=ipv6)

    def host(
        self, name: str, interfaces: Sequence[LabInterface] = (LabInterface(),), *,
        ipv6: bool = False, boot_id: str | None = None,
    ) -> Host:  # fmt: skip
        return self._add([name], interfaces, ipv6=ipv6, boot_id=boot_id)[0]

    def link(self, a: Host, b: Host, interface: str | None = None) -> Link:
        """The path between two hosts, over all their interfaces or over one of them."""
        first, second = sorted((a, b), key=lambda host: host.name)
        key = (first.name, second.name, interface)
        if key not in self._links:
            self._links[key] = Link(first, second, interface, self._network, self._write_rules)
        return self._links[key]

    def partition(
        self, *groups: Sequence[Host], interface: str | None = None, but_port: int | None = None
    ) -> None:
        """No packet passes from one group to another: see `Link.cut`."""
        for one, other in combinations(groups, 2):
            for a in one:
                for b in other:
                    self.link(a, b, interface).cut(but_port=but_port)

    def restore(self) -> None:
        """All links as they were; hosts' own firewalls stay."""
        for link in self._links.values():
            link.clear()
        self._write_rules()

    def start(
        self, host: Host, argv: Sequence[str | os.PathLike[str]], *,
        env: Mapping[str, str | None] | None = None, cwd: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:  # fmt: skip
        """A process of that host, with the test's environment changed by `env` (None removes).
        Text is piped unless `options` (those of Popen) say otherwise. It ends with the lab."""
        changed = {**os.environ, **(env or {})}
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, "text": True, **options}  # fmt: skip
        with host.children_inside():
            process = subprocess.Popen(
                host.command([os.fspath(part) for part in argv], os.fspath(cwd or os.getcwd())),
                env={name: value for name, value in changed.items() if value is not None},
                **options,
            )
        self._started.append(process)
        return process

    def run(
        self, host: Host, argv: Sequence[str | os.PathLike[str]], *,
        env: Mapping[str, str | None] | None = None, timeout: float = 60.0,
        input: str | None = None,  # noqa: A002 (as subprocess.run has it)
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        process = self.start(host, argv, env=env, **{"stdin": stdin, **options})
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def close(self) -> None:
        for link in self._links.values():
            link.clear()
        for host in self._hosts.values():
            host.end()
        for process in self._started:
            process.wait(30)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        for host in self._hosts.values():
            host.close()
        self._network.close()
        os.close(self.hub)

    def _add(
        self, names: list[str], interfaces: Sequence[LabInterface], *, ipv6: bool,
        boot_id: str | None = None,
    ) -> list[Host]:  # fmt: skip
        added = []
        for name in names:
            if name in self._hosts:
                raise LabError(f"there is a host {name} already")
            host = self._hosts[name] = Host(name, self._network, boot_id)
            self._wire(host, interfaces, number=len(self._hosts), ipv6=ipv6)
            added.append(host)
        for host in added:
            host.wait_until_ready()
        known = {host.name: host.address for host in self._hosts.values() if host.addresses}
        for host in self._hosts.values():
            host.write_names(known)
        return added

    def _wire(
        self, host: Host, interfaces: Sequence[LabInterface], number: int, *, ipv6: bool
    ) -> None:
        host.network.set("lo", state="up")
        for interface in interfaces:
            port = port_name(host.name, interface.name)
            if interface.bridge:
                inner = f"veth{len(host.interfaces)}"
                host.network.add_bridge(interface.name, interface.mtu)
                host.network.add_pair(inner, interface.mtu, self._network, port, None)
                host.network.set(inner, master=host.network.index(interface.name))
                if not interface.carrier:  # a bridge that never had a port claims to have one
                    host.network.remove(inner)
            else:
                switch = self._switch(interface.switch)
                host.network.add_pair(interface.name, interface.mtu, self._network, port, switch)
            addresses = default_addresses(interface, number, ipv6=ipv6)
            for address in addresses:
                host.network.add_address(interface.name, address)
            host.interfaces[interface.name] = interface
            host.addresses[interface.name] = tuple(a.partition("/")[0] for a in addresses)

    def _switch(self, number: int) -> str:
        name = f"switch{number}"
        if number not in self._switches:
            self._network.add_bridge(name, SWITCH_MTU)
            self._switches.add(number)
        return name

    def _write_rules(self) -> None:
        links = list(self._links.values())
        rules = "".join(f"{rule}\n" for link in links for rule in link.rules)
        head = "type filter hook forward priority 0; policy accept;"
        with namespaces.inside_network(self.hub):
            replace_table("bridge lab", f"chain forward {{\n{head}\n{rules}}}\n")
        for host in self._hosts.values():
            host.set_link_rules([rule for link in links for to, rule in link.rejects if to is host])


def _new_hub() -> int:
    namespaces.unshare(namespaces.NEW_NETWORK)
    # switches have no addresses of their own
    with open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w") as setting:
        setting.write("1")
    return namespaces.open_own("net")


def _require_permission() -> None:
    if os.geteuid():
        raise LabUnavailableError("a lab of several hosts needs root")
    missing = [name for name in ("nft", "nsenter", "mount") if not shutil.which(name)]
    if missing:
        raise LabUnavailableError(f"a lab of several hosts needs {' and '.join(missing)}")
    if find_spec("pyroute2") is None:
        raise LabUnavailableError(
            "a lab of several hosts needs pyroute2: `pip install 'holdfast[lab]'`"
        )
    try:
        namespaces.in_own_thread(lambda: namespaces.unshare(namespaces.OF_A_HOST))
    except OSError as problem:
        raise LabUnavailableError(f"no namespaces can be made here: {problem}") from problem
