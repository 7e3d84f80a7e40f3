from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from holdfast.analysis import machine as f
from holdfast.analysis.machine.known_defects import DEFECTS, KnownDefect
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import made_gpus
from tests.faults.machines import a_machine, a_plan, settings, software
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

UDS = (
    "[rank2]: misc/ipcsocket.cc:57 NCCL WARN UDS: Binding to socket /tmp/nccl-socket-2-e6a1 "
    "failed : Address already in use (98)"
)
ABORT = (
    "[rank0]: NCCL WARN socketStartConnect: Connect to 192.0.2.7<45763> failed : Software caused "
    "connection abort"
)

test_explain = explain_table(
    "known-defect",
    recognises(
        wreckage(UDS, versions={"nccl": "2.20.3"}),
        sure=0.93,
        rank=2,
        what="NCCL 2.20.3",
        saying=["NVIDIA/nccl#1185", "upgrade NCCL to 2.20.5"],
    ),
    recognises(wreckage(UDS), sure=0.7, rank=2, what="NCCL", saying=["ncclCommSplit"]),
    recognises(
        wreckage(
            "NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856",
            versions={"nccl": "2.25.1+cuda12.8"},
        ),
        sure=0.93,
        what="NCCL 2.25.1",
        saying=["Blackwell", "2.26.2"],
    ),
    recognises(
        wreckage(
            "transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported b'"
        ),
        sure=0.7,
        what="NCCL",
        saying=["NCCL_CUMEM_HOST_ENABLE=0", "no release with a fix"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-x (size 0), "
            "error: No such file or directory (2)",
            versions={"nccl": "2.27.5"},
        ),
        sure=0.85,
        what="NCCL 2.27.5",
        saying=["disagree"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- (size "
            "192814336), error: No such file or directory (2)",
        ),
        sure=0.7,
        what="NCCL",
        saying=["disagree"],
    ),
    recognises(
        wreckage(ABORT, versions={"nccl": "2.21.5"}), sure=0.6, rank=0, saying=["2.24.3", "late"]
    ),
    recognises(
        wreckage("[rank3]:     ncclLocalOpAppend (proxy.cc:502)", versions={"nccl": "2.28.9"}),
        sure=0.55,
        rank=3,
        saying=["ARM", "2.29.3"],
    ),
    passes_over(wreckage("    ncclLocalOpAppend (proxy.cc:502)", versions={"nccl": "2.29.7"})),
    passes_over(wreckage(UDS, versions={"nccl": "2.28.9"})),
    passes_over(wreckage(ABORT, versions={"nccl": "2.27.3"})),
    passes_over(wreckage("NCCL version 2.20.3+cuda12.4")),
)

NODES = a_plan(min_nodes=2, max_nodes=18)
ARM = made_gpus.pci(cpu_architecture="aarch64")
PEERMEM = f.GpuDirect(peermem="nvidia_peermem 550.54.15", dmabuf=False, kernel="6.8.0")


def having(*, nccl: str = "2.29.7", torch: str = "2.13.0", **changes: Any) -> f.MachineFacts:
    installed = msgspec.structs.replace(software(nccl=nccl), torch=torch)
    return a_machine(**{"software": installed, **changes})


def gpus(name: str, architecture: str, cluster: str = "") -> f.NvidiaFacts:
    fabric = f.GpuFabric(state="completed", status="success", cluster=cluster)
    made = (
        made_gpus.a_gpu(n, name=name, architecture=architecture, fabric=fabric) for n in range(4)
    )
    return made_gpus.nvidia(*made)


def container(kind: str) -> f.Container:
    return f.Container(kind=kind, sign="", rootless=False, network="host", ipc="host")


B200 = gpus("NVIDIA B200", "blackwell")
RTX = gpus("NVIDIA RTX PRO 6000 Blackwell Server Edition", "blackwell")
GB200 = gpus("NVIDIA GB200", "blackwell", "7d2c1f0a-0000-4000-8000-000000000001")
ALONE = gpus("NVIDIA GB200", "blackwell", "00000000-0000-0000-0000-000000000000")

test_check = check_table(
    "known-defect",
    speaks(
        "warning",
        having(nccl="2.28.9", plan=NODES, pci=ARM),
        saying=["NCCL 2.28.9 loses slots", "on ARM", "fixed in 2.29.3", "upgrade NCCL to 2.29.3"],
    ),
    silent(having(nccl="2.28.9", plan=NODES)),
    silent(having(nccl="2.28.9", pci=ARM)),  # one machine: no network queue
    silent(having(nccl="2.29.3", plan=NODES, pci=ARM)),
    silent(having(nccl="2.28.7", plan=NODES, pci=ARM)),  # came with 2.28.9
    speaks("warning", having(nccl="2.21.5", nvidia=B200), saying=["no code for Blackwell"]),
    speaks(
        "warning", having(nccl="2.25.1", nvidia=RTX), saying=["shared memory", "nccl/issues/1637"]
    ),
    speaks("warning", having(nccl="2.25.1"), saying=["aborts a communicator"]),
    silent(having(nccl="2.26.5", nvidia=B200)),
    speaks(
        "warning", having(nccl="2.26.2", nvidia=GB200, plan=a_plan(max_nodes=21)), saying=["80"]
    ),
    silent(having(nccl="2.26.2", nvidia=GB200, plan=a_plan(max_nodes=20))),
    silent(having(nccl="2.26.2", nvidia=ALONE, plan=a_plan(max_nodes=21))),
    speaks(
        "warning",
        having(nccl="2.22.3", plan=NODES, gpu_direct=PEERMEM),
        saying=["does not recognise nvidia-peermem", "nccl/issues/1676"],
    ),
    silent(
        having(
            nccl="2.22.3",
            plan=NODES,
            gpu_direct=msgspec.structs.replace(PEERMEM, memory_peers=True),
        )
    ),
    speaks(
        "warning",
        having(nccl="2.26.2", container=container("docker")),
        saying=["in containers", "--cap-add SYS_NICE"],
    ),
    silent(having(nccl="2.26.2", container=container("apptainer"))),
    silent(
        having(
            nccl="2.26.2",
            container=container("docker"),
            settings=settings(NCCL_CUMEM_HOST_ENABLE="0"),
        )
    ),
    speaks(
        "warning",
        having(nccl="2.28.9", nvidia=GB200, settings=settings(NCCL_NET_GDR_LEVEL="LOC")),
        saying=["ConnectX-8", "unset NCCL_NET_GDR_LEVEL"],
    ),
    silent(having(nccl="2.28.9", nvidia=GB200)),
    speaks("note", having(torch="2.7.0+cu126"), saying=["device_id", "COMM_NONBLOCKING=0"]),
    silent(having(torch="2.7.0", settings=settings(TORCH_NCCL_USE_COMM_NONBLOCKING="0"))),
    silent(having(torch="2.7.1")),
    speaks("note", having(torch="2.12.0", nvidia=B200), saying=["convolutions", "2.12.1"]),
    silent(having(torch="2.12.0")),
    silent(having(nccl="2.20.3")),  # only a script that splits communicators meets it
    silent(having(nccl="2.32.3", torch="2.15.0", nvidia=GB200, plan=NODES, pci=ARM)),
    skips(having(nvidia=f.Unread(why="no answer within 5 s")), saying=["no answer"]),
    skips(
        having(nvidia=f.NvidiaFacts(present=True, error="Driver/library version mismatch")),
        saying=["mismatch"],
    ),
    not_applicable(having(nvidia=f.NvidiaFacts(present=False)), saying=["no NVIDIA GPU"]),
    not_applicable(having(nccl="", torch=""), saying=["neither torch nor NCCL"]),
)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: f"{one.product} {one.what[:40]}")
def test_every_entry_has_its_source_and_a_range(defect: KnownDefect) -> None:
    assert re.match(r"https://github\.com/\S+", defect.source)
    assert not defect.fixed_in or defect.since < defect.fixed_in
    assert defect.here or defect.depends
    assert defect.affects(defect.since)
    assert not defect.fixed_in or not defect.affects(defect.fixed_in)
