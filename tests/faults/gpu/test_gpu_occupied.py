from __future__ import annotations

from typing import Any

from holdfast.analysis import machine as f
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import GIB, a_machine, a_plan, a_process, settings
from tests.faults.made_gpus import a_gpu, nvidia
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

OTHERS = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a "
    "total capacity of 79.10 GiB of which 1.00 MiB is free. Process 4711 has 78.00 GiB memory in "
    "use. Including non-PyTorch memory, this process has 0.90 GiB memory in use. Of the allocated "
    "memory 100.00 MiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but "
    "unallocated."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.65 GiB total "
    "capacity; 16.85 MiB already allocated; 13.88 MiB free; 18.00 MiB reserved in total by PyTorch)"
)
OWN = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
    "total capacity of 79.10 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this "
    "process has 77.90 GiB memory in use."
)

test_explain = explain_table(
    "gpu-occupied",
    recognises(
        wreckage(OTHERS),
        sure=0.9,
        rank=1,
        what="pid 4711 on GPU 1",
        saying=["others 78.2 GiB (pid 4711 78 GiB)", "this process had 922 MiB", "nvidia-smi"],
    ),
    recognises(
        wreckage(OLD), sure=0.9, what="other processes on GPU 0", saying=["others 23.6 GiB"]
    ),
    recognises(
        wreckage(
            "ValueError: Free memory on device (2.31/79.10 GiB) on startup is less than desired "
            "GPU memory utilization (0.9, 71.19 GiB)."
        ),
        sure=0.8,
        saying=["2.31 of 79.10 GiB was free"],
    ),
    recognises(
        wreckage(
            "[rank2]: RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"
        ),
        sure=0.7,
        rank=2,
        saying=["exclusive mode"],
    ),
    recognises(
        wreckage("[rank2]: RuntimeError: CUDA error: out of memory"),
        sure=0.5,
        rank=2,
        saying=["may have been full"],
    ),
    passes_over(wreckage(OWN)),
    passes_over(wreckage("[rank0]: CUDA out of memory. Tried to allocate more than 1EB memory.")),
    passes_over(wreckage()),
)


def a_holder(pid: int = 4711, gib: float | None = 70, **changes: Any) -> f.GpuHolder:
    told = {"command": "python train.py", "user": "alice", "age": 7200.0, **changes}
    memory = None if gib is None else int(gib * GIB)
    return f.GpuHolder(pid=pid, memory=memory, **told)


def in_use(index: int, *holders: f.GpuHolder, gib: float = 70, **changes: Any) -> f.Gpu:
    used = int((gib + 0.5) * GIB)
    told = {"memory_used": used, "memory_reserved": GIB // 2, "holders": holders, **changes}
    return a_gpu(index, **told)


def machine(*changed: f.Gpu, plan: f.Plan | None = None, **facts: Any) -> f.MachineFacts:
    kept = {gpu.index: gpu for gpu in map(a_gpu, range(4))}
    found = nvidia(*(kept | {g.index: g for g in changed}).values())
    return a_machine(plan, nvidia=found, **facts)


ORPHAN = f.Orphan(
    process=a_process(pid=815),
    rank=2,
    run_id="none",
    sign="TORCHELASTIC_RUN_ID is set and its parent is pid 1 (systemd)",
)
LEFT = f.Leftovers(orphans=(ORPHAN,), segments=(), stuck=())
TWO = a_plan(nproc=2, nproc_named=True)

test_check = check_table(
    "gpu-occupied",
    silent(a_machine()),
    speaks(
        "warning",
        machine(in_use(1, a_holder())),
        saying=[
            "other processes hold 70 GiB of 80 GiB on GPU 1",
            "pid 4711 `python train.py`, user alice, up 2 hours, 70 GiB",
            "`export CUDA_VISIBLE_DEVICES=0,2,3`",
        ],
    ),
    speaks(
        "warning",
        machine(*(in_use(n, a_holder(4711 + n)) for n in range(4))),
        saying=["280 GiB of 320 GiB on GPU 0-3", "have alice end these processes"],
    ),
    speaks(
        "warning",  # of another container
        machine(in_use(1, a_holder(command="", user="", age=None))),
        saying=["pid 4711 (not visible here), 70 GiB"],
    ),
    speaks(
        "warning",
        machine(in_use(1)),
        saying=["taken: by processes that are not visible here (another container"],
    ),
    speaks(
        "warning",
        machine(in_use(1, holders=f.Unread(why="the driver does not list the processes"))),
        saying=["the driver does not list the processes"],
    ),
    speaks("note", machine(in_use(1, a_holder(gib=12), gib=12)), saying=["12 GiB of 80 GiB"]),
    # A desktop, a service; MPS's server without a job; the page cache of a Grace machine.
    silent(machine(in_use(0, a_holder(gib=1.2, command="/usr/lib/xorg/Xorg"), gib=1.2))),
    silent(machine(in_use(0, a_holder(gib=None, command="nvidia-cuda-mps-server"), gib=0.1))),
    silent(machine(in_use(0, name="NVIDIA GB200"))),
    # Not a GPU of this job: it takes two, or is told to take others.
    silent(machine(in_use(3, a_holder()), plan=TWO)),
    silent(machine(in_use(3, a_holder()), settings=settings(CUDA_VISIBLE_DEVICES="0,1"))),
    speaks(
        "warning",
        machine(in_use(3, a_holder()), plan=TWO, settings=settings(CUDA_VISIBLE_DEVICES="3,2")),
        saying=["on GPU 3", "have alice end"],  # only one of those it may use is free
    ),
    speaks(
        "warning",
        machine(in_use(1, a_holder(815, gib=5), gib=5), leftovers=LEFT),
        saying=["pid 815 of an earlier run still holds memory of GPU 1", "`kill 815`"],
    ),
    speaks(
        "error",
        machine(*(a_gpu(n, compute_mode="prohibited") for n in (0, 1))),
        saying=["GPU 0-1 is in compute mode 'prohibited'", "`sudo nvidia-smi -c DEFAULT -i 0,1`"],
    ),
    speaks(
        "error",
        machine(in_use(1, a_holder(gib=1), gib=1, compute_mode="exclusive process")),
        saying=["compute mode 'exclusive process'", "only one process", "pid 4711"],
    ),
    silent(machine(a_gpu(1, compute_mode="exclusive process"))),
    silent(
        machine(
            in_use(
                1,
                a_holder(gib=0.1, command="nvidia-cuda-mps-server"),
                gib=0.1,
                compute_mode="exclusive process",
            )
        )
    ),
    silent(
        a_machine(nvidia=nvidia(in_use(0, a_holder(), mig=True, mig_devices=("MIG-1", "MIG-2"))))
    ),
    speaks(
        "error",
        a_machine(nvidia=nvidia(a_gpu(0, mig=True, mig_devices=()))),
        saying=["GPU 0 is in MIG mode and has no instance", "-mig 0 -i 0"],
    ),
    speaks(
        "note",
        machine(a_gpu(1, mig=True, mig_devices=())),
        saying=["GPU 1 is in MIG mode and has no instance"],
    ),
    silent(a_machine(nvidia=nvidia(a_gpu(0, mig=True, mig_devices=("MIG-1",))))),
    not_applicable(a_machine(nvidia=f.NvidiaFacts(present=False)), saying=["no NVIDIA GPU"]),
    not_applicable(
        machine(in_use(1, a_holder()), settings=settings(CUDA_VISIBLE_DEVICES="")),
        saying=["sees no GPU"],
    ),
    skips(a_machine(nvidia=nvidia(error="Unknown Error", gpus=())), saying=["Unknown Error"]),
)
