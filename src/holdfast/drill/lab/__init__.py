"""Several hosts on one machine, for tests of what lies between hosts.

    with Lab() as lab:                            # in a test: the fixture `lab`, mark `lab`
        a, b, c, d = lab.hosts(4, mtu=9000)       # about 10 ms each
        lab.link(a, b).mtu(1500)                  # larger packets vanish
        lab.link(a, c).drop(29500, to=c)          # what a sends to port 29500 of c vanishes
        done = lab.run(a, ["holdfast", "check", "--nnodes", "4", "--join", f"{a.name}:29500"])

A host has its own network (`lo` and `e0`, or what `lab.host(name, [LabInterface(…), …])` asks for),
host name, hosts file, processes, /proc, /sys/class/net, /dev/shm, /run and boot id. The disk, the
users and the control groups are the machine's. Its interfaces lead to switches in a hub, which
is a network of its own: nothing reaches the machine's network, and no name server answers.

Hosts      `lab.hosts(4)`, `lab.host("a", [LabInterface("ib0", switch=1)], ipv6=True)`;
           `a.name`, `a.address`, `a.addresses["e0"]`, `a.set_mtu(9000)`, `a.route(to, via=…)`,
           `a.resolves("a", "127.0.1.1")` (its own hosts file), `a.setting(sysctl, value)`,
           `a.firewall("tcp dport 29500 drop")`, `a.clock(90)` (a wall clock that is ahead),
           `a.cut()` (cables out) and `a.restore()`, `a.crash()` (all its processes at once).
Paths      `lab.link(a, b)`, both ways or `to=b`: `.drop()`, `.reject(port)`, `.loss(30)`,
           `.mtu(1500)`, `.rate(10)`, `.delay(50)`, `.cut()`; they add up until `.restore()`.
           `lab.partition([a, b], [c, d])`; `lab.restore()` for all paths.
Processes  `lab.run(a, argv)` as subprocess.run, `lab.start(a, argv)` as Popen: same pid, same
           signals, and the process ends with its host. `with a.inside():` sockets that the test
           itself opens are on a's network: most tests of one socket need no process.
           `a.path("/run/x")` is a's file, seen from outside.

The end of the lab, or of the process that made it (by SIGKILL too), ends all processes of its
hosts; their interfaces, rules and mounts go with them. Where no lab can be built (no root, no
nft, a container without namespaces) `Lab()` raises LabUnavailableError, and tests are skipped.
"""

from __future__ import annotations

from holdfast.drill.lab.errors import LabError, LabUnavailableError
from holdfast.drill.lab.host import Host
from holdfast.drill.lab.interfaces import LabInterface
from holdfast.drill.lab.lab import Lab
from holdfast.drill.lab.links import Link

__all__ = ["Host", "Lab", "LabError", "LabInterface", "LabUnavailableError", "Link"]
