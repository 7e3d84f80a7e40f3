"""A real etcd, on this machine's loopback or on hosts of a lab: one member, or a cluster.

    with Etcd(tmp_path) as etcd:                      # about 1 s; 127.0.0.1
        EtcdClient(etcd.access()).version()
        etcd.members[0].kill(); etcd.members[0].start()
    with Etcd(tmp_path, hosts=[a, b, c], lab=lab) as etcd: ...

Its data is in `tmp_path`; its processes end with the `with`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

from holdfast.drill.lab import Host, Lab
from holdfast.nodes.etcd.access import EtcdAccess
from holdfast.run.launch import ports

STARTS_WITHIN = 30.0


class EtcdMember:
    def __init__(self, name: str, address: str, client: int, peer: int, folder: Path) -> None:
        self.name, self.address, self.client, self.peer = name, address, client, peer
        self._folder = folder
        self._more: tuple[str, ...] = ()
        self._where: tuple[Lab, Host] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._cluster = ""

    def place(self, cluster: str, where: tuple[Lab, Host] | None, more: Sequence[str]) -> None:
        self._cluster, self._where, self._more = cluster, where, tuple(more)

    @property
    def endpoint(self) -> str:
        return f"{self.address}:{self.client}"

    def start(self) -> None:
        """Again with the same data, after `kill`."""
        scheme = "https" if "--cert-file" in self._more else "http"
        argv = [
            *("etcd", "--name", self.name, "--data-dir", str(self._folder / self.name)),
            *("--listen-client-urls", f"{scheme}://{self.endpoint}"),
            *("--advertise-client-urls", f"{scheme}://{self.endpoint}"),
            *("--listen-peer-urls", f"http://{self.address}:{self.peer}"),
            *("--initial-advertise-peer-urls", f"http://{self.address}:{self.peer}"),
            *("--initial-cluster", self._cluster, "--logger", "zap", "--log-level", "error"),
            *self._more,
        ]
        with open(self._folder / f"{self.name}.log", "ab") as log:
            if self._where:
                lab, host = self._where
                self._process = lab.start(host, argv, stdout=log, stderr=log)
            else:
                self._process = subprocess.Popen(argv, stdout=log, stderr=log, text=True)

    def kill(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """It stays, and answers nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def is_healthy(self, inside: contextlib.AbstractContextManager[object]) -> bool:
        with contextlib.suppress(OSError, ValueError), inside:
            url = f"http://{self.endpoint}/health"
            with urllib.request.urlopen(url, timeout=1) as answer:
                return str(json.load(answer)["health"]) == "true"
        return False

    def log(self) -> str:
        return (self._folder / f"{self.name}.log").read_text()[-1500:]


class Etcd:
    """One member, or one on each of `hosts` (or so many on loopback)."""

    def __init__(
        self,
        folder: Path,
        *,
        members: int = 1,
        hosts: Sequence[Host] = (),
        lab: Lab | None = None,
        more: Sequence[str] = (),
    ) -> None:
        if not shutil.which("etcd"):
            pytest.skip("etcd is not installed: `make lab`")
        count = len(hosts) or members
        self._hosts = list(hosts)
        self.members: list[EtcdMember] = []
        with contextlib.ExitStack() as held:
            for number in range(count):
                if hosts:
                    address, client, peer = hosts[number].address, 2379, 2380
                else:
                    both = [held.enter_context(ports.listen_anywhere()) for _ in range(2)]
                    address = "127.0.0.1"
                    client, peer = (one.getsockname()[1] for one in both)
                self.members.append(EtcdMember(f"m{number}", address, client, peer, folder))
        cluster = ",".join(f"{m.name}=http://{m.address}:{m.peer}" for m in self.members)
        for number, member in enumerate(self.members):
            where = (lab, hosts[number]) if lab and hosts else None
            member.place(cluster, where, more)

    @property
    def endpoint(self) -> str:
        return ",".join(member.endpoint for member in self.members)

    def access(self) -> EtcdAccess:
        return EtcdAccess(tuple((m.address, m.client) for m in self.members))

    def leader(self) -> EtcdMember:
        """By etcd's own word."""
        request = urllib.request.Request(
            f"http://{self.members[0].endpoint}/v3/maintenance/status", data=b"{}"
        )
        with self._inside(0), urllib.request.urlopen(request, timeout=5) as answer:
            leader = json.load(answer)["leader"]
        for number, member in enumerate(self.members):
            request = urllib.request.Request(
                f"http://{member.endpoint}/v3/maintenance/status", data=b"{}"
            )
            with self._inside(number), urllib.request.urlopen(request, timeout=5) as answer:
                if json.load(answer)["header"]["member_id"] == leader:
                    return member
        raise AssertionError(f"no member is {leader}")

    def wait(self) -> None:
        """Until all members that run answer."""
        deadline = time.monotonic() + STARTS_WITHIN
        while not all(m.is_healthy(self._inside(i)) for i, m in enumerate(self.members)):
            if time.monotonic() > deadline:
                pytest.fail("etcd did not start:\n" + "\n".join(m.log() for m in self.members))
            time.sleep(0.05)

    def _inside(self, number: int) -> contextlib.AbstractContextManager[object]:
        return self._hosts[number].inside() if self._hosts else contextlib.nullcontext()

    def __enter__(self) -> Etcd:
        for member in self.members:
            member.start()
        try:
            self.wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.kill()
