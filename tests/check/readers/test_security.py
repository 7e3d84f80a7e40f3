"""SELinux and firewall: real rules in a namespace, other machines from trees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Security, Unread
from holdfast.check.readers import security
from tests.check.readers.trees import elsewhere, needs_root, plant
from tests.faults.machines import a_plan

CONTEXT = "system_u:system_r:container_t:s0:c1,c2\0"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/sys/fs/selinux/enforce": "1"}, "enforcing"),
        ({"/sys/fs/selinux/enforce": "0"}, "permissive"),
        ({"/proc/self/attr/current": CONTEXT}, "active"),
        ({"/proc/self/attr/current": "docker-default (enforce)\n"}, "absent"),
        ({"/etc/selinux/config": "# comment\nSELINUX=disabled\n"}, "disabled"),
        ({}, "absent"),
    ],
)
def test_selinux(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    assert security.read_security(a_plan(), plant(tmp_path, files)).selinux == expected


# --- denials -----------------------------------------------------------------------------------


def denial(comm: str, *, at: float, context: str = "user_t", serial: int = 1) -> str:
    return (
        f"type=AVC msg=audit({int(at)}.123:{serial}): avc:  denied  {{ name_bind }} for  pid=9 "
        f'comm="{comm}" src=80 scontext=u:r:{context}:s0 tcontext=u:r:port_t:s0 tclass=tcp_socket'
    )


def test_recent_denials_of_training_are_kept(tmp_path: Path) -> None:
    now = time.time()
    lines = [
        denial("python3", at=now - 3 * 86400),
        denial("nginx", at=now - 60),
        "type=SYSCALL msg=audit(1700000000.1:1): comm=python3",
        denial("python3", at=now - 60, serial=2),
        denial("sh", at=now - 50, context="container_t", serial=3),
        denial("pt_main_thread", at=now - 40, serial=4),
    ]
    root = plant(tmp_path, {f"/{security.AUDIT_LOG}": "\n".join(lines) + "\n"})
    found = security.read_security(a_plan(), root).denials
    assert found == tuple(lines[3:])


def test_only_the_last_few(tmp_path: Path) -> None:
    lines = [denial("torchrun", at=1000, serial=n) for n in range(50)]
    found = security.recent_denials("\n".join(lines), now=1010)
    assert found == tuple(lines[-security.SHOWN :])


def test_a_missing_log_means_something_only_without_selinux(tmp_path: Path) -> None:
    assert security.read_security(a_plan(), str(tmp_path)).denials == ()
    root = plant(tmp_path, {"/sys/fs/selinux/enforce": "1"})
    found = security.read_security(a_plan(), root).denials
    assert isinstance(found, Unread)
    assert "no audit log" in found.why


@pytest.mark.lab
def test_an_ordinary_user_is_told_what_could_not_be_read(tmp_path: Path) -> None:
    needs_root()
    plant(tmp_path, {f"/{security.AUDIT_LOG}": "secret"})
    tmp_path.chmod(0o755)
    (tmp_path / security.AUDIT_LOG).chmod(0o600)

    def as_user() -> Security:
        os.chdir(tmp_path)  # its parents belong to root alone
        os.setuid(54321)
        return security.read_security(a_plan(), root=".")

    found = elsewhere(as_user, Security)
    assert isinstance(found.denials, Unread)
    assert "only root may read" in found.denials.why
    assert isinstance(found.rules, Unread)
    assert found.firewall.startswith("could not be read: only root may read the rules")


# --- firewall ----------------------------------------------------------------------------------


def test_services_are_known_by_their_files(tmp_path: Path) -> None:
    files = {
        "/run/firewalld.pid": "77\n",
        "/proc/77/status": "",
        "/etc/ufw/ufw.conf": "# comment\nENABLED=yes\n",
        "/proc/net/ip_tables_names": "nat\nfilter\n",
    }
    found = security.read_security(a_plan(), plant(tmp_path, files))
    for words in ("firewalld active", "ufw enabled", "iptables (legacy): filter, nat"):
        assert words in found.firewall
    assert isinstance(found.rules, Unread)


def test_services_that_are_installed_but_off(tmp_path: Path) -> None:
    files = {"/run/firewalld.pid": "77\n", "/etc/ufw/ufw.conf": "ENABLED=no\n"}
    found = security.read_security(a_plan(), plant(tmp_path, files))
    assert "firewalld" not in found.firewall
    assert "ufw" not in found.firewall


IN_A_NETWORK_NAMESPACE = """
import subprocess, sys
import msgspec
from holdfast.check.readers import security
subprocess.run([sys.argv[1], "-f", "-"], input=sys.argv[2].encode(), check=True)
sys.stdout.buffer.write(msgspec.json.encode(security.read_security(None)))
"""


def with_rules(rules: str) -> Security:
    needs_root()
    nft = shutil.which("nft", path=f"{os.environ['PATH']}:/usr/sbin")
    if nft is None:
        pytest.skip("needs nft")
    answer = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", IN_A_NETWORK_NAMESPACE, nft, rules],
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(answer.stdout, type=Security)


@pytest.mark.lab
def test_real_rules_are_counted() -> None:
    found = with_rules(
        "table inet guard {\n"
        "  chain more { tcp dport 29600 drop; }\n"
        "  chain input { type filter hook input priority 0; tcp dport 29500 drop; jump more; }\n"
        "}\n"
        "table ip nat {\n"
        "  chain out { type nat hook output priority 0; tcp dport 1 accept; }\n"
        "}\n"
    )
    assert (found.firewall, found.rules) == ("nftables: 1 table", 3)


@pytest.mark.lab
def test_a_real_chain_that_drops_by_default_needs_no_rule() -> None:
    found = with_rules(
        "table ip shut {\n  chain input { type filter hook input priority 0; policy drop; }\n}\n"
    )
    assert found.firewall == "nftables: 1 table, drops by default: input"
    assert found.rules == 0


@pytest.mark.lab
def test_a_real_machine_without_rules() -> None:
    found = with_rules("")
    assert (found.firewall, found.rules) == ("none seen", 0)


def _ruleset(items: object) -> bytes:
    return json.dumps({"nftables": items}).encode()


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(_ruleset))
def test_any_answer_of_nft_is_taken_calmly(answer: bytes) -> None:
    found = security.count_rules(answer)
    assert isinstance(found.rules, Unread) or found.rules >= 0


@given(st.text(), st.floats(allow_nan=False))
def test_any_audit_log_is_taken_calmly(text: str, now: float) -> None:
    assert len(security.recent_denials(text, now=now)) <= security.SHOWN


@pytest.mark.parametrize(
    ("modules", "builtin", "absent"),
    [
        ("overlay 1 0 - Live 0x0\n", "kernel/fs/ext4/ext4.ko\n", True),
        ("nf_tables 372736 0 - Live 0x0\n", "", False),
        ("overlay 1 0 - Live 0x0\n", "kernel/net/netfilter/nf_tables.ko\n", False),
        ("", "", False),  # a kernel without modules
    ],
)
def test_asking_must_not_load_a_module(
    tmp_path: Path, modules: str, builtin: str, absent: bool
) -> None:
    release = os.uname().release
    root = plant(
        tmp_path, {"proc/modules": modules, f"lib/modules/{release}/modules.builtin": builtin}
    )
    assert security.nf_tables_is_absent(root) is absent
