from __future__ import annotations

from holdfast.facts import Container, Shm, Unread
from tests.faults.machines import GIB, a_machine, a_plan
from tests.faults.table import foresee_table, silent, skips, speaks

MIB = 1 << 20


def shm(size: int, free: int | None = None, error: str = "") -> Shm:
    return Shm(size=size, free=size if free is None else free, tried=MIB, error=error)


def inside(kind: str) -> Container:
    return Container(kind=kind, sign="seen", rootless=False, network="own", ipc="own")


DOCKER_DEFAULT = shm(64 * MIB)
ONE_RANK = a_plan(nproc=1)

test_foresee = foresee_table(
    "shm-too-small",
    speaks(
        "error",
        a_machine(shm=DOCKER_DEFAULT, container=inside("docker")),
        saying=[
            "64 MiB free of 64 MiB",
            "little for 4 ranks",
            "estimate: NCCL takes about 37 MiB a rank",
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
        saying=["1 MiB of shared memory could not be had: ENOSPC", "No space left"],
    ),
    speaks(
        "warning",  # Gloo does not use it; loaders would
        a_machine(shm=DOCKER_DEFAULT, accelerators=()),
        saying=["without loader workers nothing may break"],
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
        "error",
        a_machine(shm=Shm(size=0, free=0, tried=0, error="ENOENT")),
        saying=["there is no /dev/shm"],
        not_saying=["0 bytes of shared"],
    ),
    silent(a_machine()),
    silent(a_machine(a_plan(nproc=8), shm=shm(GIB))),  # what NCCL's guide suggests
    silent(a_machine(ONE_RANK, shm=shm(128 * MIB))),
    skips(a_machine(shm=Unread(why="/dev/shm is not mounted")), saying=["not mounted"]),
)
