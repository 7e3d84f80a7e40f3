"""This user is not allowed to listen on the master port.

What you see   `DistNetworkError: The server socket has failed to bind. port: 80, … name: EACCES,
               message: permission denied`, at once and every time.
Why            Ports below net.ipv4.ip_unprivileged_port_start (1024 by default) need
               CAP_NET_BIND_SERVICE. Above it, a security module denies the bind: SELinux restricts
               confined services and containers to the ports in their policy, and writes an AVC line
               to the audit log for each denial. Jobs started from a login shell are rarely
               confined.
How to be sure `cat /proc/sys/net/ipv4/ip_unprivileged_port_start`; `getenforce`; and, as root,
               `ausearch -m AVC -ts recent`. No AVC line, no SELinux denial.
Fix            Use a port from 1024 up. For SELinux, add a rule: `ausearch -m AVC -ts recent |
               audit2why` says which one is missing, `semanage port -a -t TYPE -p tcp PORT` adds a
               port to a type. Do not switch SELinux off: that removes its protection from the whole
               machine.
Known limits   Denials by seccomp, a sandbox or BPF leave no trace that holdfast can read; they are
               inferred when neither the port number nor SELinux explains the refusal. The audit log
               is usually readable by root only.
Sources        https://docs.kernel.org/networking/ip-sysctl.html: ip_unprivileged_port_start
               https://man7.org/linux/man-pages/man8/semanage-port.8.html
               https://man7.org/linux/man-pages/man8/ausearch.8.html
"""

from __future__ import annotations

import errno

from holdfast import shell_words
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import (
    MachineFacts,
    PortFacts,
    Unread,
    known,
    port_evidence,
    rendezvous,
)
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD110",
    slug="permission-denied",
    related=("port-in-use", "loopback-blocked", "peer-unreachable"),
)
FAULT.errno(
    errno.EACCES, "not permitted: a port below 1024 without the privilege, or SELinux denies it"
)

_DENIED = (
    r"EACCES|EPERM|errno: (?:13|1)\b|system error: 10013\b"
    r"|[Pp]ermission denied|[Oo]peration not permitted"
)
BIND = FAULT.log_pattern(
    "bind",
    r"server socket has failed to (?:bind|listen)(?:.{0,300}?(?:\bport: |\]:)(?P<port>\d+))?"
    rf".*(?:{_DENIED})",
    anchors=("server socket has failed to",),
    example="torch.distributed.DistNetworkError: The server socket has failed to bind. port: 80, "
    "useIpv6: false, code: -13, name: EACCES, message: permission denied",
)
PRIVILEGED = FAULT.log_pattern(
    "privileged",
    # The reason is cut off, or comes before it: for such a port it is nearly always the same.
    r"server socket has failed to bind to \S{1,80}:(?P<port>[1-9]\d{0,2}|10[01]\d|102[0-3])\b"
    r"(?!.*(?:in use|EADDRINUSE|errno: (?!13)))",
    anchors=("server socket has failed to bind to",),
    example="[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:80",
)
CONNECT = FAULT.log_pattern(
    "connect",
    rf"(?:client socket has failed to connect|Connect to \S+ failed|Call to (?:connect|bind|"
    rf"listen)\b.*failed).*(?:{_DENIED})",
    anchors=("ermission denied", "peration not permitted", "errno: 13 "),
    example="node-a:411:498 [0] NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Operation not "
    "permitted",
)
SHARED_MEMORY = FAULT.log_pattern(
    "shared-memory",
    r"(?:shm_open failed ?:|/dev/shm/(?P<file>[\w.-]{1,80})[^\n]{0,80}) ?Permission denied",
    anchors=("shm_open failed", "dev/shm/"),
    example="node-a:411:498 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission "
    "denied",
)
AVC = FAULT.log_pattern(
    "avc",
    r"avc: +denied +\{ (?P<what>[\w ]+) \}.*?comm=\"(?P<name>[^\"]+)\"(?:.*?src=(?P<port>\d+))?",
    anchors=("avc:  denied", "avc: denied"),
    example="type=AVC msg=audit(1700000000.1:42): avc:  denied  { name_bind } for  pid=4711 "
    'comm="python3" src=29500 scontext=system_u:system_r:container_t:s0 tclass=tcp_socket',
    role=Role.CONFIRMATION,
)
SSH = FAULT.log_pattern(
    "ssh",
    r"(?:(?<![\w.@-])(?P<where>[\w.@-]{1,64}): )?Permission denied "
    r"\((?:publickey|password|keyboard|gssapi)[^)]*\)"
    r"|Host key verification failed",
    anchors=("Permission denied (", "Host key verification failed"),
    example="kim@node-b: Permission denied (publickey,password).",
)

REFUSALS = ("EACCES", "EPERM")


@FAULT.check(needs=("port", "port_ranges", "security"))
def port_may_not_be_bound(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if plan.port == 0:
        return FAULT.does_not_apply("the launcher picks the port itself")
    port = known(facts.port)
    refused = [bind for bind in port.binds if bind.error in REFUSALS]
    if not refused or any(not bind.error for bind in port.binds):
        return FAULT.ok(f"this user may bind port {port.port}")
    ranges = facts.port_ranges
    if not isinstance(ranges, Unread) and port.port < ranges.first_unprivileged:
        return FAULT.error(
            f"port {port.port} is privileged, and this user may not bind it",
            reason=f"ports below {ranges.first_unprivileged} need CAP_NET_BIND_SERVICE",
            evidence=[port_evidence.binds(port)],
            fix=rendezvous.choose_another_port(plan, ranges),
        )
    return _denied_above(facts, port)


@FAULT.check(needs=("security",))
def selinux_denied_something(facts: MachineFacts) -> Finding:
    security = known(facts.security)
    if security.selinux != "enforcing":
        return FAULT.ok(f"SELinux is {security.selinux}, so it denies nothing")
    denials = known(security.denials)
    if not denials:
        return FAULT.ok("SELinux is enforcing and has denied nothing to Python or a container")
    return FAULT.note(
        "SELinux recently denied something to Python or a container",
        reason="it may have been another program; if this job stops with 'Permission denied', this "
        "is why",
        evidence=_avc(denials),
        fix="find the missing rule: `sudo ausearch -m AVC -ts recent | audit2why`",
    )


def _denied_above(facts: MachineFacts, port: PortFacts) -> Finding:
    security = facts.security
    if isinstance(security, Unread) or security.selinux != "enforcing":
        return FAULT.error(
            f"this user may not bind port {port.port}",
            reason="the port is not privileged and no enforcing SELinux was seen: most likely a "
            "sandbox, seccomp or BPF rule of the container or service forbids it",
            evidence=[port_evidence.binds(port)],
            fix=f"{rendezvous.choose_another_port(facts.plan, facts.port_ranges)}, or allow the "
            "port where the sandbox is configured",
        )
    denials = security.denials
    if isinstance(denials, Unread):
        proof = f"the audit log, which would prove it, could not be read ({denials.why})"
    else:
        proof = "the audit log shows denials" if denials else "yet the audit log shows no denial"
    return FAULT.error(
        f"this user may not bind port {port.port}: probably SELinux",
        reason=f"the port is not privileged and SELinux is enforcing; {proof}",
        evidence=[port_evidence.binds(port), *_avc(() if isinstance(denials, Unread) else denials)],
        fix="find the missing rule with `sudo ausearch -m AVC -ts recent | audit2why` and add it; "
        "keep SELinux on",
    )


def _avc(lines: tuple[str, ...]) -> list[Evidence]:
    return [Evidence(quote=line, source="/var/log/audit/audit.log") for line in lines[-3:]]


NETWORK = ("name_bind", "name_connect", "connect", "bind", "listen", "accept", "create")


@FAULT.explain
def bind_or_connect_was_forbidden(wreckage: Wreckage) -> Diagnosis | None:
    plain = wreckage.seen(BIND, CONNECT)
    seen = plain or wreckage.seen(PRIVILEGED)
    if not seen:
        return None
    first = seen[0]
    port = int(first.fields.get("port", "0"))
    privileged = 0 < port < 1024
    action = "connect from" if first.pattern == CONNECT.name else "listen on"
    why = "ports below 1024 are privileged" if privileged else "a rule of the system forbids it"
    return FAULT.diagnosis(
        f"the process was not allowed to {action} {f'port {port}' if port else 'its port'}: {why}",
        confidence=_bind_confidence(first) if plain else 0.7,
        seen=[*seen, *wreckage.seen(AVC)],
        culprit=Culprit(host=first.line.host, what=f"port {port}" if port else "a security rule"),
        fix="choose a port from 1024 up: `--master-port 29600`"
        if privileged
        else "find the rule (SELinux, seccomp, a local firewall) and add an exception for this "
        "job; keep it on",
        next="cat /proc/sys/net/ipv4/ip_unprivileged_port_start"
        if privileged
        else "sudo ausearch -m AVC -ts recent | audit2why",
    )


def _bind_confidence(seen: Sighting) -> float:
    if "10013" in seen.line.text:
        return 0.75  # Windows also reports this for a port that another program uses exclusively
    return 0.95 if seen.pattern == BIND.name else 0.85


@FAULT.explain
def shared_memory_was_forbidden(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(SHARED_MEMORY)
    if not seen:
        return None
    file = next((one.fields["file"] for one in seen if "file" in one.fields), "")
    what = f"shared memory segment {file}".strip()
    return FAULT.diagnosis(
        f"the process was not allowed to open its {what}: one of the same name belongs to another "
        "user, left by a killed job, or /dev/shm itself is not writable for all users",
        confidence=0.75,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=what),
        fix="have the owner remove the leftovers once no job uses them; /dev/shm itself must be "
        "drwxrwxrwt",
        next="ls -la /dev/shm",
    )


@FAULT.explain
def selinux_denied_it(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(AVC)
    if not seen or wreckage.seen(BIND, CONNECT):
        return None
    first = seen[0].fields
    network = any(word in first["what"] for word in NETWORK)
    python = first["name"].startswith(("python", "torchrun", "pt_"))
    return FAULT.diagnosis(
        f"SELinux denied {{ {first['what']} }} to {first['name']}",
        confidence=0.8 if network and python else 0.4,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"SELinux: {first['what']}"),
        fix="find the missing rule with `sudo ausearch -m AVC -ts recent | audit2why` and add it; "
        "keep SELinux on",
        next="sudo ausearch -m AVC -ts recent | audit2why",
    )


@FAULT.explain
def ssh_login_failed(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(SSH)
    if not seen:
        return None
    where = seen[0].fields.get("where", "").rpartition("@")[2]
    return FAULT.diagnosis(
        f"the launcher could not log in to {where or 'a node'} by ssh, so no rank was "
        "started there",
        confidence=0.75,
        seen=seen,
        culprit=Culprit(what=where or "a node"),
        fix="set up ssh without a password for the launching user: `ssh-copy-id NODE`, and accept "
        "its host key once",
        next=shell_words.command("ssh -o BatchMode=yes {} true", where),
    )
