"""Which of several Xid lines names the cause."""

from __future__ import annotations

import pytest

from holdfast.analysis.logs import xid_reports
from holdfast.analysis.logs.patterns import kernel
from tests.analysis.logs.patterns.made import wreckage

CLEAN_UP = "NVRM: Xid (PCI:0000:3d:00): 45, pid=11, name=python, Ch 00000010"
ILLEGAL_ADDRESS = "NVRM: Xid (PCI:0000:3d:00): 31, pid=11, name=python, MMU Fault"
OFF_THE_BUS = "NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus."


def test_the_gravest_report_comes_first_and_a_clean_up_does_not_count() -> None:
    seen = wreckage(CLEAN_UP, ILLEGAL_ADDRESS, OFF_THE_BUS).seen(kernel.XID)
    assert [xid_reports.number(one) for one in xid_reports.worst_first(seen)] == [79, 31]


@pytest.mark.parametrize("pci", ["0000:3d:00", "0000:3D:00.0"])
def test_a_bus_id_as_nccl_writes_it(pci: str) -> None:
    assert xid_reports.nccl_bus_id(pci) == "3d000"
