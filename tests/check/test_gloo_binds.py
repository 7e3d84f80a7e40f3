"""What torch's Gloo binds, against our simulation of it: one process, in a namespace of its own."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.machine import Interface, Resolution, gloo_choice
from tests.faults.machines import a_machine, settings
from tests.system.sockets import needs_root, run_python

BIND = """
import datetime, os, socket, subprocess, sys, tempfile
import msgspec
import torch.distributed as dist
from holdfast.check.readers import names, network
from tests.faults.machines import a_plan

socket.sethostname("node-a")
hosts = tempfile.NamedTemporaryFile("w")
for command in (
    "mount -t sysfs sysfs /sys",
    f"mount --bind {hosts.name} /etc/hosts",
    "ip link set lo up",
    "ip link add eth0 type veth peer name p0",
    "ip link set p0 up",
    "ip link set eth0 up",
    "ip address add 2001:db8::5/64 dev eth0 nodad",
    "ip address add 10.0.0.5/24 dev eth0",
    "ip address add 10.9.0.5/24 dev eth0 label eth0:1",
    "ip link add eth1 type veth peer name p1",  # never has a carrier
    "ip link set eth1 up",
    "ip address add 10.1.0.5/24 dev eth1",
    "ip link add bare type veth peer name p2",
):
    subprocess.run(command.split(), check=True)

def listening():
    found = {}
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in open(f"/proc/self/net/{table}").readlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                raw = bytes.fromhex(local.partition(":")[0])
                words = [raw[at:at + 4][::-1] for at in range(0, len(raw), 4)]
                found[inode] = socket.inet_ntop(family, b"".join(words))
    return found

def bind(value):
    os.environ["GLOO_SOCKET_IFNAME"] = value
    before, error = listening(), ""
    try:
        kept.append(dist.ProcessGroupGloo(dist.HashStore(), 0, 1, datetime.timedelta(seconds=5)))
    except RuntimeError as problem:
        error = str(problem)
    bound = [address for inode, address in listening().items() if inode not in before]
    return {"value": value, "bound": bound, "error": error}

kept, rows = [], []
for case in sys.argv[1:]:
    value, _, own = case.partition("|")
    hosts.seek(0)
    hosts.truncate()
    hosts.write("127.0.0.1 localhost\\n" + "".join(f"{ip} node-a\\n" for ip in own.split()))
    hosts.flush()
    rows.append({**bind(value), "own": names.read_own_name(a_plan()),
                 "interfaces": network.read_interfaces(a_plan())})
print(msgspec.json.encode(rows).decode(), flush=True)
os._exit(0)
"""
CASES = (
    *("eth0", "eth1", "eth0,eth1", "eth1,", "eth0:1", "lo", "e"),
    *("^docker0", "=eth0", "bare", "eth0,,eth1"),
    *("|10.0.0.5", "|127.0.1.1", "|192.0.2.9", "|192.0.2.9 10.1.0.5", "|2001:db8::5", "|"),
)
FAILS = ("^docker0", "=eth0", "bare", "eth0,,eth1")


class Bound(msgspec.Struct):
    value: str
    bound: list[str]
    error: str
    own: Resolution
    interfaces: tuple[Interface, ...]


@pytest.mark.lab
def test_gloo_binds_what_we_say_it_does() -> None:
    needs_root()
    inside = ["unshare", "--net", "--mount", "--uts"]
    rows = msgspec.json.decode(run_python(BIND, *CASES, inside=inside), type=list[Bound])
    assert len(rows) == len(CASES)
    for row in rows:
        machine = a_machine(
            interfaces=row.interfaces,
            own_name=row.own,
            settings=settings(GLOO_SOCKET_IFNAME=row.value),
        )
        choice = gloo_choice.choose(machine)
        assert sorted(one.address for one in choice.taken) == sorted(row.bound), row
        assert bool(choice.error) == bool(row.error) == (row.value in FAILS), row
        assert choice.error.strip("`") in row.error
    own = [set(row.own.addresses) for row in rows if not row.value]
    assert own == [set(case[1:].split()) for case in CASES if case.startswith("|")]
