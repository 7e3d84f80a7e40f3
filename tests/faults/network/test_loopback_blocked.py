from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis import machine as f
from holdfast.catalogue import by_slug
from tests.faults.machines import a_loopback, a_machine, an_interface
from tests.faults.table import check_table, silent, skips, speaks, words_of


def tried(v4: str, v6: str = "", seconds: float = 0.001) -> tuple[f.Reach, ...]:
    return (
        f.Reach(address="127.0.0.1", port=20001, error=v4, seconds=seconds),
        f.Reach(address="::1", port=20002, error=v6, seconds=seconds),
    )


LO_DOWN = msgspec.structs.replace(a_loopback(), running=False, state="down", addresses=())
SELINUX = f.Security(
    selinux="enforcing",
    denials=('avc: denied { name_connect } comm="python"',),
    firewall="none seen",
    rules=0,
)


def with_nccl(version: str) -> f.Software:
    software = a_machine().software
    assert isinstance(software, f.Software)
    library = msgspec.structs.replace(software.nccl[0], version=version)
    return msgspec.structs.replace(software, nccl=(library,))


test_check = check_table(
    "loopback-blocked",
    speaks(
        "error",
        a_machine(loopback=tried("ECONNREFUSED", "ECONNREFUSED")),
        saying=[
            "cannot connect to 127.0.0.1: ECONNREFUSED",
            "holdfast listened there itself",
            "iif lo accept",
        ],
        not_saying=["Software caused"],
    ),
    speaks(
        "error",
        a_machine(loopback=tried("EHOSTUNREACH")),
        saying=["rejects it (administratively prohibited)"],
    ),
    speaks(
        "error",
        a_machine(loopback=tried("ETIMEDOUT", "ETIMEDOUT", 0.3)),
        saying=["drops it", "after 0.3 s"],
    ),
    speaks(
        "error",
        a_machine(loopback=tried("EACCES"), security=SELINUX),
        saying=["SELinux) forbids it", "name_connect", "ausearch -m AVC", "SELinux: enforcing"],
    ),
    speaks("error", a_machine(loopback=tried("EPERM")), saying=["IPAddressDeny"]),
    speaks(
        "error",
        a_machine(
            loopback=tried("EADDRNOTAVAIL", "EADDRNOTAVAIL"), interfaces=(LO_DOWN, an_interface())
        ),
        saying=["the interface lo is down", "`sudo ip link set lo up`", "lo is down"],
        not_saying=["nft"],
    ),
    speaks("error", a_machine(loopback=tried("ENOBUFS")), saying=["ENOBUFS", "has no explanation"]),
    speaks(
        "error",
        a_machine(loopback=tried("ECONNREFUSED"), software=with_nccl("2.21.5")),
        saying=["NCCL 2.21.5 reports it as 'Software caused connection abort'"],
    ),
    speaks(
        "error",
        a_machine(
            loopback=tried("ETIMEDOUT"),
            interfaces=f.Unread(why="x"),
            security=f.Unread(why="x"),
            software=with_nccl(""),
        ),
        saying=["ETIMEDOUT"],
        not_saying=["Software caused"],
    ),
    speaks(
        "note",
        a_machine(loopback=tried("", "EADDRNOTAVAIL")),
        saying=["::1) is missing; 127.0.0.1 works"],
    ),
    speaks("warning", a_machine(loopback=tried("", "ETIMEDOUT")), saying=["::1 are blocked"]),
    silent(a_machine()),
    skips(a_machine(loopback=f.Unread(why="no answer within 0.8 s")), saying=["no answer"]),
)


@pytest.mark.parametrize("error", ["ECONNREFUSED", "EHOSTUNREACH", "ETIMEDOUT", "EACCES"])
def test_never_advises_switching_protection_off(error: str) -> None:
    machine = a_machine(loopback=tried(error), security=SELINUX)
    text = " ".join(words_of(finding) for finding in by_slug("loopback-blocked").ask_check(machine))
    for words in ("setenforce", "disable", "systemctl stop", "flush"):
        assert words not in text
