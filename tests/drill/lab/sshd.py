"""Real sshd on hosts of a lab, and a user's ssh configuration that leads to them.

    with lab_or_skip() as lab:
        a, b = lab.hosts(2)
        ssh = SshUser(tmp_path)
        serve_ssh(lab, b, ssh)                    # sshd on b takes the user's key
        with a.inside(), ssh.in_path():           # `ssh b` started by the test comes from a
            subprocess.run(["ssh", "b", "true"])

Keys, configuration and known hosts are files in `tmp_path`: nothing of the machine's own ~/.ssh is
read. An sshd ends with its host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drill.lab import Host, Lab

SSHD = "/usr/sbin/sshd"


class SshUser:
    """A key, a configuration and a list of known hosts."""

    def __init__(self, folder: Path) -> None:
        if not os.path.exists(SSHD) or not shutil.which("ssh"):
            pytest.skip("OpenSSH's client and server are not installed")
        self.folder = folder
        self.key = new_key(folder / "id")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.config = folder / "config"
        self.config.write_text(
            f"UserKnownHostsFile {self.known_hosts}\nGlobalKnownHostsFile none\n"
            f"IdentityFile {self.key}\nIdentitiesOnly yes\n"
        )
        wrapper = folder / "bin" / "ssh"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        wrapper.chmod(0o755)

    def configure(self, name: str, *lines: str) -> None:
        """Settings for a host; the first that ssh finds counts."""
        block = "".join(f"  {line}\n" for line in lines)
        self.config.write_text(f"Host {name}\n{block}Match all\n{self.config.read_text()}")

    def in_path(self) -> contextlib.AbstractContextManager[None]:
        """`ssh` means: with this user's configuration."""
        return _environment(PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")


def serve_ssh(
    lab: Lab,
    host: Host,
    user: SshUser,
    *lines: str,
    known: bool = True,
    key: Path | None = None,
    port: int = 22,
) -> None:
    """sshd with these additional settings, which come first; `ssh NAME` leads there."""
    folder = user.folder / f"{host.name}-{port}"
    folder.mkdir()
    host_key = new_key(folder / "host_key")
    public = (key or user.key).with_suffix(".pub").read_text()
    (folder / "authorized_keys").write_text(public)
    settings = [
        *lines,
        f"ListenAddress {host.address}:{port}",
        f"HostKey {host_key}",
        f"AuthorizedKeysFile {folder / 'authorized_keys'}",
        "PermitRootLogin yes",
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
    ]
    config = folder / "sshd_config"
    config.write_text("\n".join(settings) + "\n")
    host.path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    lab.start(host, [SSHD, "-D", "-e", "-f", config], stderr=subprocess.DEVNULL)
    user.configure(host.name, f"HostName {host.address}", f"Port {port}")
    if known:
        where = host.address if port == 22 else f"[{host.address}]:{port}"
        line = f"{where} {host_key.with_suffix('.pub').read_text()}"
        user.known_hosts.write_text(user.known_hosts.read_text() + line)
    _wait_until_it_listens(host, port)


def new_key(path: Path) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, timeout=30
    )
    return path


def _wait_until_it_listens(host: Host, port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        with host.inside():
            client = socket.socket()
        with client, contextlib.suppress(OSError):
            client.connect((host.address, port))
            return
        assert time.monotonic() < deadline, f"sshd did not start on {host.name}"
        time.sleep(0.01)


@contextlib.contextmanager
def _environment(**changed: str) -> Iterator[None]:
    before = {name: os.environ.get(name, "") for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        os.environ.update(before)
