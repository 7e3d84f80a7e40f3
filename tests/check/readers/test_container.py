"""Containers are told from machines by what they really leave to see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Container
from holdfast.check.readers import container
from tests.check.readers.trees import needs_root, plant
from tests.faults.machines import a_plan

DIGITS = "0123456789abcdef" * 4
WHOLE = "         0          0 4294967295\n"
ROOTLESS = "         0       1000          1\n         1     100000      65536\n"
REMAPPED = "         0     165536      65536\n"
OWN = {name: f"{name}:[4026532{n}]" for n, name in enumerate(container.FIRST_NAMESPACES, 400)}


def namespaces(root: Path, links: dict[str, str]) -> None:
    folder = root / "proc/self/ns"
    folder.mkdir(parents=True)
    for name, target in links.items():
        os.symlink(target, folder / name)


@pytest.mark.parametrize(
    ("files", "kind", "sign", "rootless"),
    [
        ({"/.dockerenv": ""}, "docker", "/.dockerenv exists", False),
        ({"/proc/self/cgroup": f"4:memory:/docker/{DIGITS}"}, "docker", "cgroup", False),
        ({"/proc/self/cgroup": f"0::/system.slice/docker-{DIGITS}.scope"}, "docker", "cg", False),
        ({"/.dockerenv": "", "/proc/self/uid_map": ROOTLESS}, "docker", "", True),
        ({"/.dockerenv": "", "/proc/self/uid_map": REMAPPED}, "docker", "", None),
        ({"/run/.containerenv": 'engine="podman-4"\nrootless=1\n'}, "podman", "", True),
        ({"/run/.containerenv": 'engine="podman-4"\nrootless=0\n'}, "podman", "", False),
        ({"/run/.containerenv": ""}, "podman", "", False),
        (
            {"/.dockerenv": "", "/var/run/secrets/kubernetes.io/serviceaccount/token": ""},
            "kubernetes",
            "serviceaccount",
            False,
        ),
        ({"/proc/self/cgroup": "0::/kubepods.slice/pod1"}, "kubernetes", "kubepods", False),
        ({"/.singularity.d/env/x": ""}, "apptainer", "/.singularity.d", False),
        ({"/proc/1/environ": "A=b\0container=lxc\0"}, "lxc", "pid 1 says lxc", False),
        ({"/run/systemd/container": "lxc\n"}, "lxc", "/run/systemd/container says lxc", False),
        ({"/run/systemd/container": "systemd-nspawn\n"}, "other", "systemd-nspawn", False),
    ],
)
def test_kinds(
    tmp_path: Path, files: dict[str, str], kind: str, sign: str, rootless: bool | None
) -> None:
    namespaces(tmp_path, OWN)
    root = plant(tmp_path, {"/proc/self/uid_map": WHOLE, **files})
    found = container.read_container(a_plan(), root)
    assert (found.kind, found.rootless) == (kind, rootless)
    assert sign in found.sign


@pytest.mark.parametrize(
    ("variable", "kind"),
    [
        ("APPTAINER_CONTAINER", "apptainer"),
        ("SINGULARITY_CONTAINER", "apptainer"),
        ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ],
)
def test_kinds_told_by_the_environment(tmp_path: Path, variable: str, kind: str) -> None:
    found = container.read_container(a_plan(environment={variable: "x"}), str(tmp_path))
    assert (found.kind, found.sign) == (kind, f"{variable} is set")


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"/.dockerenv": "", "/run/.containerenv": ""},  # a virtual machine made from an image
        {"/proc/self/cgroup": "0::/system.slice/docker.service"},  # where the daemon lives
        {"/run/systemd/container": "wsl"},
        {"/proc/1/environ": "HOME=/\0"},
    ],
)
def test_machines_are_no_containers(tmp_path: Path, files: dict[str, str]) -> None:
    namespaces(tmp_path, container.FIRST_NAMESPACES)
    core = {"/proc/sys/net/core/somaxconn": "", "/proc/sys/net/core/netdev_max_backlog": ""}
    found = container.read_container(a_plan(), plant(tmp_path, {**core, **files}))
    assert found == Container(
        kind="", sign="no sign of a container", rootless=None, network="host", ipc="host"
    )


def test_what_cannot_be_seen_is_unknown(tmp_path: Path) -> None:
    found = container.read_container(a_plan(), str(tmp_path))
    assert (found.network, found.ipc) == ("unknown", "unknown")


@pytest.mark.lab
@pytest.mark.parametrize(
    ("flag", "network_is_new", "ipc_is_new"), [("--net", True, False), ("--ipc", False, True)]
)
def test_real_namespaces(flag: str, network_is_new: bool, ipc_is_new: bool) -> None:
    needs_root()
    code = (
        "import msgspec, sys; from holdfast.check.readers import container;"
        "from tests.faults.machines import a_plan;"
        "sys.stdout.buffer.write(msgspec.json.encode(container.read_container(a_plan())))"
    )
    answer = subprocess.run(
        ["unshare", flag, sys.executable, "-c", code], stdout=subprocess.PIPE, check=True
    )
    found = msgspec.json.decode(answer.stdout, type=Container)
    here = container.read_container(a_plan())
    assert found.network == ("own" if network_is_new else here.network)
    assert found.ipc == ("own" if ipc_is_new else here.ipc)


@given(st.text())
def test_only_the_whole_map_is_whole(text: str) -> None:
    assert container.is_whole_user_map(text) == (text.split() == WHOLE.split())
