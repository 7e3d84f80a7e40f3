from __future__ import annotations

from holdfast.analysis.logs.wreckage import Exit, LogLine
from holdfast.analysis.machine import Container, Shm, Unread
from tests.analysis.logs.patterns.made import traceback, wreckage
from tests.faults.machines import GIB, a_machine, a_plan
from tests.faults.table import (
    check_table,
    explain_table,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

MIB = 1 << 20


def shm(size: int, free: int | None = None, error: str = "") -> Shm:
    return Shm(size=size, free=size if free is None else free, tried=MIB, error=error)


def inside(kind: str) -> Container:
    return Container(kind=kind, sign="seen", rootless=False, network="own", ipc="own")


DOCKER_DEFAULT = shm(64 * MIB)
ONE_RANK = a_plan(nproc=1)

test_check = check_table(
    "shm-too-small",
    speaks(
        "error",
        a_machine(shm=DOCKER_DEFAULT, container=inside("docker")),
        saying=[
            "64 MiB free of 64 MiB",
            "little for 4 ranks",
            "estimate: NCCL takes about 37 MiB per rank",
            "cuMem",
            "docker run --shm-size=8g",
            "--ipc=host",
        ],
    ),
    speaks("error", a_machine(a_plan(nproc=2), shm=DOCKER_DEFAULT), saying=["little for 2 ranks"]),
    speaks("error", a_machine(ONE_RANK, shm=shm(8 * MIB)), saying=["8 MiB free", "18 MiB"]),
    speaks(
        "error",  # not even one batch: no GPU is needed for that
        a_machine(shm=shm(8 * MIB), accelerators=()),
        saying=["8 MiB free of 8 MiB", "SIGBUS", "`mount -o remount,size=8G /dev/shm`"],
    ),
    speaks("error", a_machine(shm=shm(64 * GIB, free=MIB)), saying=["1 MiB free", "leftovers"]),
    speaks(
        "error",
        a_machine(shm=shm(64 * GIB, error="ENOSPC")),
        saying=["1 MiB of shared memory could not be allocated: ENOSPC", "No space left"],
    ),
    speaks(
        "warning",  # Gloo does not use it; loaders would
        a_machine(shm=DOCKER_DEFAULT, accelerators=()),
        saying=["a job without loader workers may run"],
        not_saying=["NCCL takes"],
    ),
    speaks("warning", a_machine(ONE_RANK, shm=DOCKER_DEFAULT), saying=["little for 1 rank"]),
    speaks(
        "warning",
        a_machine(shm=shm(256 * MIB), container=inside("kubernetes")),
        saying=["`medium: Memory`"],
        not_saying=["remount"],
    ),
    speaks(
        "warning",
        a_machine(shm=shm(256 * MIB), container=inside("apptainer")),
        saying=["the host's /dev/shm"],
    ),
    speaks(
        "warning",  # a job without loader workers runs there
        a_machine(shm=Shm(size=0, free=0, tried=0, error="ENOENT")),
        saying=["/dev/shm cannot be used: there is no such folder", "of its own"],
        not_saying=["0 bytes of shared"],
    ),
    speaks(
        "warning",
        a_machine(shm=shm(64 * GIB, error="EROFS"), container=inside("docker")),
        saying=["mounted read-only", "without `:ro`"],
        not_saying=["No space left"],
    ),
    silent(a_machine()),
    silent(a_machine(a_plan(nproc=8), shm=shm(GIB))),  # what NCCL's guide suggests
    silent(a_machine(ONE_RANK, shm=shm(128 * MIB))),
    skips(a_machine(shm=Unread(why="/dev/shm is not mounted")), saying=["not mounted"]),
)

BUS = (
    "[rank1]: RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is "
    "possible that dataloader's workers are out of shared memory."
)
BANNER = "NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be"
NO_SPACE = "OSError: [Errno 28] No space left on device"


test_explain = explain_table(
    "shm-too-small",
    passes_over(
        wreckage(
            "node8:1:2 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied",
            "node8:1:2 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment "
            "nccl-shm-recv-b7-0-3-0 (size 4460544)",
        )
    ),
    recognises(
        wreckage(
            "there is not enough space for /dev/shm/vader_segment.a.1 (the shared-memory backing "
            "file). It is"
        ),
        sure=0.95,
        saying=["vader_segment"],
    ),
    recognises(
        wreckage("[rank1]: Caught signal 7 (Bus error: nonexistent physical address)"),
        sure=0.7,
        rank=1,
        saying=["touched a page"],
    ),
    recognises(
        wreckage("  Signal code: Non-existant physical address (2)"),  # Open MPI spells it so
        sure=0.7,
        saying=["touched a page"],
    ),
    recognises(
        wreckage(
            "[rank2]: misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-WxYzAb "
            "to 9637892 bytes, error: No space left on device (28)"
        ),
        sure=0.95,
        rank=2,
        saying=["a segment of 9.19 MiB (/dev/shm/nccl-WxYzAb)", "--shm-size=8g", "df -h /dev/shm"],
    ),
    recognises(
        wreckage(
            "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device"
        ),
        sure=0.95,
        saying=["full or too small"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-WxYzAb (size 7)"
        ),
        sure=0.85,
        saying=["full or too small"],
    ),
    recognises(
        wreckage(
            "misc/shmutils.cc:103 NCCL WARN Cuda failure 'invalid argument'",
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-WxYzAb (size 7)",
        ),
        sure=0.55,
        saying=["CUDA refused to pin it"],
    ),
    recognises(
        wreckage("RuntimeError: unable to write to file </torch_18692_1954506624>"),
        sure=0.95,
        saying=["/torch_18692_1954506624"],
    ),
    recognises(
        wreckage(
            "[rank0]: unable to allocate shared memory(shm) for file </torch_1_2_3>: Success (0)"
        ),
        sure=0.95,
        rank=0,
        saying=["/torch_1_2_3"],
    ),
    recognises(
        wreckage(BANNER, BUS),
        sure=0.9,
        rank=1,
        what="DataLoader worker pid 4711",
        saying=["bus error", "Docker's default of 64MB"],
    ),
    recognises(
        wreckage(*traceback(NO_SPACE, "/py/multiprocessing/synchronize.py:57 __init__", rank=0)),
        sure=0.95,
        rank=0,
        saying=["in /dev/shm"],
    ),
    recognises(
        wreckage("unable to open shared memory object </torch_4711_12> in read-write mode"),
        sure=0.35,
        saying=["does not say why"],
    ),
    recognises(
        wreckage(exits=(Exit(code=-7, line=LogLine(text="-7", source="x", number=1), rank=3),)),
        sure=0.5,
        rank=3,
        saying=["SIGBUS"],
    ),
    passes_over(wreckage(*traceback(NO_SPACE, "/py/torch/serialization.py:57 __init__", rank=0))),
    passes_over(
        wreckage(
            "unable to open shared memory object </torch_1> in read-write mode: Too many open f"
        )
    ),
    passes_over(
        wreckage(
            "Error while creating shared memory segment /dev/shm/nccl-x (size 8), error: Too "
            "many open files (24)"
        )
    ),
    passes_over(wreckage("[rank0]: RuntimeError: CUDA out of memory.", BANNER)),
)
