"""SELinux and firewall, as far as they may be read; nothing is changed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from typing import NamedTuple

from holdfast.analysis.machine import Plan, Security, Unread
from holdfast.redaction import redact

AUDIT_LOG = "var/log/audit/audit.log"
TAIL = 256 * 1024
"""bytes of the audit log that are read: thousands of records"""
RECENT = 86400.0
"""seconds; an older denial belongs to another job"""
SHOWN = 5
NFT_SECONDS = 0.5

# Linux names a process by 15 characters: torch calls its main thread 'pt_main_thread'.
OURS = re.compile(r"python|torch|pt_main_thread|container", re.IGNORECASE)


def read_security(_plan: Plan, root: str = "/") -> Security:
    selinux = _selinux(root)
    firewall = _firewall(root)
    return Security(
        selinux=selinux,
        denials=_denials(root, selinux),
        firewall=firewall.words,
        rules=firewall.rules,
    )


# --- SELinux -----------------------------------------------------------------------------------


def _selinux(root: str) -> str:
    mode = _read(root, "sys/fs/selinux/enforce").strip()
    if mode:
        return "enforcing" if mode == "1" else "permissive"
    # Containers do not see the file above, but a process of an SELinux machine has a context
    # of four parts ('system_u:system_r:container_t:s0'); AppArmor's has no colons.
    if _read(root, "proc/self/attr/current").count(":") >= 3:
        return "active"
    config = _read(root, "etc/selinux/config")
    return "disabled" if re.search(r"^SELINUX=", config, re.MULTILINE) else "absent"


def _denials(root: str, selinux: str) -> tuple[str, ...] | Unread:
    try:
        with open(os.path.join(root, AUDIT_LOG), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        if selinux in ("absent", "disabled"):
            return ()
        return Unread(why="there is no audit log here; `ausearch -m avc -ts today` on the host")
    except PermissionError:
        return Unread(why=f"only root may read /{AUDIT_LOG}: `sudo ausearch -m avc -ts today`")
    return recent_denials(text, now=time.time())


def recent_denials(text: str, *, now: float) -> tuple[str, ...]:
    """The last few access denials of a day that name python, torch or a container."""
    found = []
    for line in text.splitlines():
        stamp = re.search(r"type=AVC msg=audit\((\d{1,12})", line)
        fresh = stamp and now - int(stamp[1]) <= RECENT
        if fresh and "denied" in line.lower() and OURS.search(line):
            found.append(redact(line.strip()))
    return tuple(found[-SHOWN:])


# --- firewall ----------------------------------------------------------------------------------


class Firewall(NamedTuple):
    words: str
    rules: int | Unread


def _firewall(root: str) -> Firewall:
    legacy = _legacy_tables(root)
    nft = Firewall("", 0) if nf_tables_is_absent(root) else _nftables()
    seen = [
        *(["firewalld active"] if _firewalld_runs(root) else []),
        *(["ufw enabled"] if _ufw_enabled(root) else []),
        *([f"iptables (legacy): {', '.join(legacy)}"] if legacy else []),
        *([nft.words] if nft.words else []),
    ]
    rules = nft.rules
    if legacy and not isinstance(rules, Unread):
        rules = Unread(why="old-style iptables rules: `sudo iptables-legacy-save` shows them")
    if not seen:
        seen = [f"could not be read: {rules.why}" if isinstance(rules, Unread) else "none seen"]
    return Firewall("; ".join(seen), rules)


def nf_tables_is_absent(root: str) -> bool:
    """The kernel part is neither loaded nor built in: there can be no rules.

    Then nft must not be asked, because asking alone would load the module.
    """
    loaded = _read(root, "proc/modules")
    builtin = _read(root, f"lib/modules/{os.uname().release}/modules.builtin")
    # No list of modules at all is a kernel without modules: whatever it has is built in.
    return bool(loaded) and "nf_tables " not in loaded and "/nf_tables.ko" not in builtin


def _nftables() -> Firewall:
    """iptables of the last years writes nftables, too, so this sees both."""
    program = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if os.geteuid() != 0:
        return Firewall("", Unread(why="only root may read the rules: `sudo nft list ruleset`"))
    if program is None:
        return Firewall("", Unread(why="the rules are read with `nft`, which is not installed"))
    try:
        answer = subprocess.run(
            [program, "-j", "list", "ruleset"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=NFT_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return Firewall("", Unread(why=f"`nft list ruleset` took longer than {NFT_SECONDS:g} s"))
    except subprocess.CalledProcessError as problem:
        words = problem.stderr.decode(errors="replace").strip().splitlines() or ["no words"]
        return Firewall("", Unread(why=f"`nft list ruleset` failed: {words[0]}"))
    return count_rules(answer.stdout)


def count_rules(ruleset: bytes) -> Firewall:
    """Tables that filter, and their rules; address translation blocks nothing."""
    try:
        items = json.loads(ruleset)["nftables"]
        chains = [item["chain"] for item in items if "chain" in item]
        rules = [item["rule"] for item in items if "rule" in item]
        filtering = {(c["family"], c["table"]) for c in chains if c.get("type") == "filter"}
        count = sum((rule["family"], rule["table"]) in filtering for rule in rules)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        why = f"the answer of `nft` was not understood ({type(problem).__name__})"
        return Firewall("", Unread(why=why))
    if not filtering:
        return Firewall("", 0)
    words = f"nftables: {len(filtering)} table{'s' if len(filtering) > 1 else ''}"
    # Without a single rule, such a chain still blocks everything.
    if closed := sorted({str(c.get("hook")) for c in chains if c.get("policy") == "drop"}):
        words += f", drops by default: {', '.join(closed)}"
    return Firewall(words, count)


def _legacy_tables(root: str) -> list[str]:
    """Loaded tables of the old iptables. Only root may read this; others hear so from nft."""
    names = ("proc/net/ip_tables_names", "proc/net/ip6_tables_names")
    return sorted({table for name in names for table in _read(root, name).split()})


def _firewalld_runs(root: str) -> bool:
    pid = _read(root, "run/firewalld.pid").strip()
    return pid.isdecimal() and os.path.isdir(os.path.join(root, "proc", pid))


def _ufw_enabled(root: str) -> bool:
    return bool(re.search(r"^ENABLED=yes", _read(root, "etc/ufw/ufw.conf"), re.MULTILINE))


def _read(root: str, name: str) -> str:
    """'' for what is missing or not ours to read."""
    try:
        with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
