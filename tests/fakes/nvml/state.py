"""What a fake driver holds: plain data, so that another process can be given it as JSON.

None means that the card does not support it; a number outside the enumerations of nvml.h is what
a driver newer than holdfast would say.
"""

from __future__ import annotations

import msgspec

UINT, ULL, INT = 1, 3, 5
"""kinds of a field's value: nvmlValueType_t"""


class FakeLink(msgspec.Struct, kw_only=True):
    active: bool = True
    remote_type: int = 2
    remote_bus_id: str = "00000000:05:00.0"
    errors: tuple[int, ...] | None = (0, 0, 0, 0, 0)
    """replay, recovery, CRC flit, CRC data, ECC data; None on NVLink 5, which has fields instead"""
    fields: dict[int, int] = msgspec.field(default_factory=dict)
    grows: dict[str, int] = msgspec.field(default_factory=dict)
    """by how much a counter (its number, or its field's) grows from one look to the next"""


class FakeFabric(msgspec.Struct, kw_only=True):
    state: int = 0
    status: int = 0
    clique: int = 0
    cluster: str = "00000000-0000-0000-0000-000000000000"
    health_mask: int = 0
    summary: int = 0


class FakeGpu(msgspec.Struct, kw_only=True):
    name: str
    uuid: str
    bus_id: str
    minor: int
    architecture: int
    memory_total: int
    memory_reserved: int
    memory_used: int = 0
    """by programs"""
    utilization: int | None = 0
    ecc_mode: int | None = 1
    ecc_errors: tuple[int, int, int, int] = (0, 0, 0, 0)
    """corrected and uncorrected since the driver was loaded, corrected and uncorrected ever"""
    sram_threshold_exceeded: int | None = 0
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    retired_pending: int | None = None
    fields: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    """number of a field -> kind of its value, value"""
    clock_reasons: int = 1
    temperature: int = 30
    slowdown_threshold: int | None = None
    margin: int | None = None
    power: int = 70_000
    power_limit: int = 700_000
    default_power_limit: int = 700_000
    sm_clock: int = 345
    max_sm_clock: int = 1980
    pcie: tuple[int, int, int, int] | None = (16, 16, 5, 5)
    """width now and possible, generation now and possible"""
    replays: int | None = 0
    mig: int | None = 0
    mig_uuids: tuple[str, ...] = ()
    persistence: int = 1
    compute_mode: int = 0
    virtualization: int = 0
    links: tuple[FakeLink, ...] = ()
    fabric: FakeFabric | None = None
    processes: tuple[tuple[int, int | None], ...] = ()
    """pid and bytes"""
    refusals: dict[str, int] = msgspec.field(default_factory=dict)
    """call -> what it returns instead of an answer; '*' is every call with this GPU"""
    hangs: tuple[str, ...] = ()
    """calls that never return"""


class FakeDriver(msgspec.Struct, kw_only=True):
    version: str
    cuda: int
    gpus: tuple[FakeGpu, ...] = ()
    library: str = ""
    """of the user-space library, where it is another"""
    init_code: int = 0
    missing: tuple[str, ...] = ()
    """calls that this driver is too old for"""
    hangs: tuple[str, ...] = ()
    newest_fabric: int = 3
    """version of the fabric call's structure that it knows"""
