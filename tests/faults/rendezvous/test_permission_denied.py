from __future__ import annotations

from holdfast.analysis.machine import Bind, Security, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import a_machine, a_plan, a_port
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

REFUSED = (Bind(family="IPv6", error="EACCES"), Bind(family="IPv4", error="EACCES"))
AVC = 'avc:  denied  { name_bind } for pid=7 comm="python3" src=29500'


def selinux(state: str, denials: tuple[str, ...] | Unread = ()) -> Security:
    return Security(selinux=state, denials=denials, firewall="none seen", rules=0)


test_check = check_table(
    "permission-denied",
    speaks(
        "error",
        a_machine(a_plan(port=80, port_origin="--port"), port=a_port(port=80, binds=REFUSED)),
        saying=["port 80 is privileged", "below 1024", "--master-port 29600"],
        not_saying=["sudo", "SELinux"],
    ),
    speaks(
        "error",
        a_machine(port=a_port(binds=REFUSED), security=selinux("enforcing", (AVC,))),
        saying=["probably SELinux", "name_bind", "audit2why", "keep SELinux on"],
        not_saying=["setenforce"],
    ),
    speaks(
        "error",
        a_machine(
            port=a_port(binds=REFUSED), security=selinux("enforcing", Unread(why="not permitted"))
        ),
        saying=["could not be read (not permitted)"],
    ),
    speaks(
        "error",
        a_machine(port=a_port(binds=REFUSED), security=selinux("enforcing")),
        saying=["yet the audit log shows no denial"],
    ),
    speaks(
        "error",
        a_machine(port=a_port(binds=REFUSED), security=selinux("permissive", (AVC,))),
        saying=["seccomp"],
        not_saying=["audit2why"],
    ),
    speaks(
        "error",
        a_machine(port=a_port(binds=REFUSED), port_ranges=Unread(why="no /proc")),
        saying=["may not bind port 29500"],
    ),
    speaks("note", a_machine(security=selinux("enforcing", (AVC,))), saying=["recently", "comm="]),
    silent(a_machine()),
    silent(a_machine(security=selinux("enforcing"))),
    silent(a_machine(security=selinux("permissive", (AVC,)))),
    # taken is not forbidden, and one family is enough
    silent(a_machine(port=a_port(binds=(Bind(family="IPv4", error="EADDRINUSE"),)))),
    silent(a_machine(port=a_port(binds=(REFUSED[0], Bind(family="IPv4", error=""))))),
    # a site may allow low ports to everybody
    silent(a_machine(a_plan(port=80), port=a_port(port=80))),
    skips(a_machine(port=Unread(why="no answer")), saying=["no answer"]),
    skips(
        a_machine(security=selinux("enforcing", Unread(why="audit log closed"))),
        saying=["audit log closed"],
    ),
    not_applicable(a_machine(a_plan(port=0)), saying=["picks the port itself"]),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "permission-denied",
    recognises(
        wreckage("include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied"),
        sure=0.75,
        what="shared memory segment",
        saying=["belongs to another user", "ls -la /dev/shm"],
    ),
    recognises(
        wreckage("NCCL WARN Error: failed to open /dev/shm/nccl-Xb12Cd, error: Permission denied"),
        sure=0.75,
        what="shared memory segment nccl-Xb12Cd",
        saying=["drwxrwxrwt"],
    ),
    passes_over(wreckage("NCCL WARN Error: failed to extend /dev/shm/nccl-Xb12Cd to 9637892")),
    recognises(  # the reason is cut off
        wreckage("[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:374"),
        sure=0.7,
        what="port 374",
        saying=["privileged"],
    ),
    recognises(
        wreckage(
            "[c10d] The server socket has failed to bind to [host]:51545 (system error: 10013 - "
            "An attempt was made to access a socket in a way forbidden.)."
        ),
        sure=0.75,
        what="port 51545",
        saying=["a rule of the system forbids"],
    ),
    passes_over(wreckage("[c10d] The server socket has failed to bind to [::]:29500")),
    passes_over(
        wreckage(
            "[c10d] The server socket has failed to bind to [::]:22 (errno: 98 - Address already "
            "in use)."
        )
    ),
    recognises(
        wreckage(
            "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to bind. "
            "port: 80, useIpv6: false, code: -13, name: EACCES, message: permission denied"
        ),
        sure=0.95,
        what="port 80",
        saying=["not allowed to listen on port 80", "below 1024", "--master-port 29600"],
    ),
    recognises(
        wreckage(
            "RuntimeError: The server socket has failed to listen on any local network address. "
            "The server socket has failed to bind to [::]:29500 (errno: 13 - Permission denied)."
        ),
        sure=0.95,
        what="port 29500",
        saying=["a rule of the system forbids", "keep it on"],
    ),
    recognises(
        wreckage("NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Operation not permitted"),
        sure=0.85,
        what="a security rule",
        saying=["not allowed to connect"],
    ),
    recognises(
        wreckage(
            "type=AVC msg=audit(1700000000.1:42): avc:  denied  { name_bind } for  pid=4711 "
            'comm="python3" src=29500 scontext=system_u:system_r:container_t:s0'
        ),
        sure=0.8,
        what="SELinux: name_bind",
        saying=["SELinux denied { name_bind } to python3", "keep SELinux on"],
    ),
    recognises(
        wreckage("kim@node-b: Permission denied (publickey,password)."),
        sure=0.75,
        what="node-b",
        saying=["could not log in to node-b by ssh"],
    ),
    passes_over(wreckage("PermissionError: [Errno 13] Permission denied: '/data/out'")),
    passes_over(
        wreckage(
            "RuntimeError: The server socket has failed to listen on any local network address. "
            "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
            "use)."
        )
    ),
)
