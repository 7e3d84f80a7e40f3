"""Commands that disable a firewall or SELinux for the whole machine. Pure."""

from __future__ import annotations

import re

from holdfast.analysis.source.source import Command


def disabled_guard(command: Command) -> str:
    """'SELinux' or 'the firewall'; '' where the command disables neither."""
    texts = [word.text for word in command.words[1:]]
    line = " ".join(texts)
    if command.name == "setenforce":
        return "SELinux" if texts and texts[0].lower() in ("0", "permissive") else ""
    if command.name == "sed" and re.search(r"SELINUX=(?:disabled|permissive)", line):
        return "SELinux"
    if command.name == "ufw":
        return "the firewall" if "disable" in texts else ""
    if command.name in ("systemctl", "service"):
        stops = {"stop", "disable", "mask"} & set(texts)
        guard = re.search(r"\b(?:firewalld|ufw|nftables|iptables|ip6tables)\b", line)
        return "the firewall" if stops and guard else ""
    if command.name in ("iptables", "ip6tables"):
        flushed = {"-F", "--flush"} & set(texts) and "-t" not in texts and len(texts) == 1
        return "the firewall" if flushed or line.startswith("-P INPUT ACCEPT") else ""
    return "the firewall" if command.name == "nft" and line == "flush ruleset" else ""
