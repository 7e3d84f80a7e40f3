"""`holdfast check` against real faults: sockets, limits, namespaces, orphans."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.holdfast_command import (
    findings,
    free_port,
    in_a_namespace,
    listener,
    run,
    wait_until,
    words,
)
from tests.places import TARGETS


def test_a_listener_on_the_port_is_named_by_pid_and_command() -> None:
    port = free_port()
    with listener(port) as squatter:
        spoken = findings("--port", str(port), "--only", "port-in-use")
    (finding,) = spoken["port-in-use"]
    assert finding["status"] == "error"
    assert f"pid {squatter.pid} " in words(finding)
    assert "import socket, signal" in words(finding)
    assert f"stop pid {squatter.pid}" in finding["fix"]


def close_in_order(*, client_port: int = 0, server_port: int = 0, first: str) -> None:
    """Make a loopback connection and close one side first: that side keeps TIME_WAIT."""
    with socket.create_server(("127.0.0.1", server_port)) as server, socket.socket() as client:
        if client_port:
            client.bind(("127.0.0.1", client_port))
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        order = [client, accepted] if first == "client" else [accepted, client]
        for side in order:
            side.close()


def test_a_client_side_time_wait_blocks_and_the_seconds_left_are_told() -> None:
    port = free_port()
    close_in_order(client_port=port, first="client")
    spoken = findings("--port", str(port), "--only", "port-ephemeral,port-in-use")
    (finding,) = spoken["port-ephemeral"]
    assert finding["status"] == "error"
    assert "TIME_WAIT" in words(finding)
    seconds = [int(n) for n in words(finding).split() if n.isdigit() and int(n) <= 61]
    assert seconds, words(finding)
    assert "port-in-use" not in spoken


def test_a_server_side_time_wait_is_no_complaint() -> None:
    port = free_port()
    close_in_order(server_port=port, first="server")
    assert findings("--port", str(port), "--only", "port-ephemeral,port-in-use") == {}


def test_a_port_in_the_ephemeral_range_is_warned_about() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    spoken = findings("--port", str((low + high) // 2), "--only", "port-ephemeral")
    assert [f["status"] for f in spoken["port-ephemeral"]] == ["warning"]


def test_few_open_files() -> None:
    within = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"]
    spoken = findings("--only", "fd-limit", within=within)
    assert [f["status"] for f in spoken["fd-limit"]] == ["error"]
    assert "64" in words(spoken["fd-limit"][0])


def test_limits_of_a_launcher_are_judged_too() -> None:
    child = subprocess.Popen(["sh", "-c", "ulimit -n 64; exec sleep 60"])
    try:
        wait_until(lambda: psutil.Process(child.pid).name() == "sleep")
        spoken = findings("--launcher-pid", str(child.pid), "--only", "fd-limit")
    finally:
        child.kill()
        child.wait()
    assert f"pid {child.pid}" in words(spoken["fd-limit"][0])


@pytest.mark.lab
def test_own_name_at_loopback(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 node-a\n")
    setup = f"hostname node-a; mount --bind {hosts} /etc/hosts"
    within = in_a_namespace("uts", "mount", setup=setup)
    only = ("--only", "hostname-misresolves")
    (several,) = findings("--nnodes", "2", *only, within=within)["hostname-misresolves"]
    assert several["status"] == "error"
    assert "127.0.1.1" in words(several)
    (one,) = findings(*only, within=within)["hostname-misresolves"]
    assert one["status"] == "note"


def test_a_setting_that_no_program_reads() -> None:
    environment = {"NCCL_REUSE_SOCKET_ADDR": "0"}
    (finding,) = findings(environment=environment)["variable-unread"]
    assert finding["status"] == "warning"
    assert "NCCL_REUSE_SOCKET_ADDR" in finding["summary"]


def test_two_settings_that_fight() -> None:
    environment = {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    (finding,) = findings(environment=environment)["variable-conflict"]
    assert "TORCH_NCCL_BLOCKING_WAIT wins" in words(finding)


@pytest.mark.lab
def test_a_tiny_dev_shm() -> None:
    within = in_a_namespace("mount", setup="mount -t tmpfs -o size=8m shm /dev/shm")
    (finding,) = findings("--only", "shm-too-small", within=within)["shm-too-small"]
    assert finding["status"] == "error"
    assert "8 MiB" in words(finding)


@pytest.mark.lab
def test_a_full_checkpoint_folder(tmp_path: Path) -> None:
    setup = (
        f"mount -t tmpfs -o size=4m ckpt {tmp_path}; "
        f"dd if=/dev/zero of={tmp_path}/filler bs=1M 2>/dev/null || true"
    )
    within = in_a_namespace("mount", setup=setup)
    spoken = findings("--ckpt", str(tmp_path), "--only", "disk-full", within=within)
    assert [f["status"] for f in spoken["disk-full"]] == ["error"]
    assert str(tmp_path) in words(spoken["disk-full"][0])


@pytest.mark.lab
def test_a_read_only_checkpoint_folder(tmp_path: Path) -> None:
    within = in_a_namespace("mount", setup=f"mount -t tmpfs -o ro ckpt {tmp_path}")
    spoken = findings("--ckpt", str(tmp_path), "--only", "folder-unwritable", within=within)
    assert [f["status"] for f in spoken["folder-unwritable"]] == ["error"]
    assert "read-only" in words(spoken["folder-unwritable"][0])


def test_orphans_of_a_killed_launcher_are_named(tmp_path: Path) -> None:
    port = free_port()
    pids = tmp_path / "pids"
    launcher = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         "--master-port", str(port), str(TARGETS / "note_pid_and_wait.py"), str(pids)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ranks: list[int] = []
    try:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, seconds=60)
        ranks = [int(pid) for pid in pids.read_text().split()]
        assert "orphaned-workers" not in findings("--only", "orphaned-workers"), "still launched"
        launcher.kill()
        launcher.wait()
        wait_until(lambda: all(psutil.Process(pid).ppid() != launcher.pid for pid in ranks))
        spoken = findings("--only", "orphaned-workers")
    finally:
        launcher.kill()
        launcher.wait()
        for pid in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    text = " ".join(words(finding) for finding in spoken["orphaned-workers"])
    assert [pid for pid in ranks if f"pid {pid} " not in text] == []


def test_torch_is_never_imported() -> None:
    """With torch forbidden in parent and readers alike, nothing changes."""
    program = (
        "import builtins, sys\n"
        "importing = builtins.__import__\n"
        "def guarded(name, *rest, **more):\n"
        "    if name.partition('.')[0] == 'torch': raise ImportError('torch was imported')\n"
        "    return importing(name, *rest, **more)\n"
        "builtins.__import__ = guarded\n"
        "from holdfast.cli.main import main\n"
        "main(['check', '--verbose', '--fail-on', 'never', '--deadline', '30'])\n"
        "main(['explain', 'port-in-use'])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "torch was imported" not in done.stdout
    assert "torch 2." in done.stdout.splitlines()[0], "its version is read all the same"


def test_nothing_is_a_bug_here() -> None:
    done = run("check", "--verbose", "--nnodes", "2", "--nproc-per-node", "4", "--ckpt", "/tmp")
    assert "bug in holdfast" not in done.stdout
    assert "Traceback" not in done.stderr
