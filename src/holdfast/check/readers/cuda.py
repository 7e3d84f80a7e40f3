"""What a small CUDA program meets on each GPU, each in a process of its own.

A GPU that another program uses gets no context: there only CUDA's initialisation is tried, which
takes nothing on the GPU. GPUs that CUDA_VISIBLE_DEVICES hides from the job are left alone.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Callable, Sequence

import msgspec

from holdfast.analysis.machine import CudaFacts, CudaProbe, Gpu, NvidiaFacts, Plan, Unread
from holdfast.analysis.machine.gpus_in_use import why_not_to_try
from holdfast.analysis.machine.visible_gpus import visible
from holdfast.system import cuda_driver, deadline
from holdfast.system.cuda_driver import NO_CODE, CudaDevice, CudaDriver, CudaFailure
from holdfast.system.nvidia.gpu import read_use
from holdfast.system.nvidia.library import GpuGone, Library, installed

SECONDS = 15.0
"""for one GPU; without persistence mode the driver starts each of them for the look"""
STEPS = ("load", "init", "context", "memory", "copy")
GPUS = "proc/driver/nvidia/gpus"
LASTING = (100, 802, 803, 804)
"""errors of a machine, which do not pass: no device, fabric, versions"""
FORBIDDEN = "forbidden"
BY_BUS_ID = "nvmlDeviceGetHandleByPciBusId"


class ProbeAnswer(msgspec.Struct):
    """What one child sends."""

    probe: CudaProbe | None = None
    library: str = ""
    version: str = ""


def read_cuda(plan: Plan, root: str = "/") -> CudaFacts:
    if not os.path.exists(os.path.join(root, "proc/driver/nvidia")):
        return CudaFacts(library="", compat=False, version="", probes=())
    wanted = plan.environment.get("CUDA_VISIBLE_DEVICES")
    answers = probe_twice(gpus_of_job(list_gpus(root), wanted))
    told = next((one for one in answers if one.library), None) or _load_only()
    return CudaFacts(
        library=told.library,
        compat="/compat/" in told.library,
        version=told.version,
        probes=tuple(one.probe for one in answers if one.probe is not None),
    )


# --- which GPUs ----------------------------------------------------------------------------------


def list_gpus(root: str) -> list[Gpu]:
    """As the kernel module lists them, in PCI order, and numbered as its libraries do: those that
    this process may not open are not counted. Each in a child: the driver may ask the GPU."""
    try:
        places = sorted(os.listdir(os.path.join(root, GPUS)))
    except OSError:
        return []
    answers = deadline.ask(
        {place: _listing(root, place) for place in places},
        seconds=deadline.time_left(SECONDS) / 4,
    )
    # One that does not answer is there: the probe will show what is wrong with it.
    uuids = ["" if isinstance(a := answers[place], Unread) else a.decode() for place in places]
    usable = [uuid for uuid in uuids if uuid != FORBIDDEN]
    return [Gpu(index=index, uuid=uuid) for index, uuid in enumerate(usable)]


def _listing(root: str, place: str) -> deadline.Question:
    def ask() -> bytes:
        with open(os.path.join(root, GPUS, place, "information"), encoding="utf-8") as file:
            pairs = (line.partition(":") for line in file)
            told = {name.strip(): value.strip() for name, _, value in pairs}
        if not _may_open(os.path.join(root, f"dev/nvidia{told.get('Device Minor', '')}")):
            return FORBIDDEN.encode()
        uuid = told.get("GPU UUID", "")
        # Question marks stand for it while the driver has not started the GPU.
        return uuid.encode() if re.fullmatch(r"GPU-[0-9a-f-]{36}", uuid) else b""

    return ask


def _may_open(node: str) -> bool:
    """That a scheduler forbids it by the device cgroup shows only when it is tried."""
    try:
        os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except (PermissionError, FileNotFoundError):
        return False
    except OSError:  # the GPU's own trouble
        return True
    return True


def gpus_of_job(listed: Sequence[Gpu], wanted: str | None) -> list[Gpu]:
    """Those that a program with this CUDA_VISIBLE_DEVICES sees."""
    seen = visible(NvidiaFacts(present=True, gpus=tuple(listed)), wanted).indices or ()
    return [gpu for gpu in listed if gpu.index in seen]


# --- the probe -----------------------------------------------------------------------------------


def why_leave_alone(device: CudaDevice) -> str:
    """By NVML, which takes nothing on the GPU."""
    gpu = None
    if installed():
        nvml = Library()
        try:
            broken, _ = nvml.initialise()
            handle = None if broken else nvml.ask(BY_BUS_ID, device.bus_id)
            gpu = None if handle is None else read_use(nvml, handle, Gpu(index=0))
        except GpuGone as gone:
            gpu = Gpu(index=0, unread=gone.words)
    return why_not_to_try(gpu)


def probe_twice(gpus: Sequence[Gpu]) -> list[ProbeAnswer]:
    """CUDA's start fails now and then on GPUs that work a moment later."""
    first = {gpu.index: answer for gpu, answer in zip(gpus, probe_each(gpus), strict=True)}
    doubtful = [gpu for gpu in gpus if _may_pass(first[gpu.index].probe)]
    again = zip(doubtful, probe_each(doubtful), strict=True)
    return list({**first, **{gpu.index: answer for gpu, answer in again}}.values())


def _may_pass(probe: CudaProbe | None) -> bool:
    return probe is not None and probe.code > 0 and probe.code not in LASTING


def probe_each(
    gpus: Sequence[Gpu],
    driver: Callable[[], CudaDriver] = CudaDriver,
    leave_alone: Callable[[CudaDevice], str] = why_leave_alone,
) -> list[ProbeAnswer]:
    """All at once; one that does not answer costs the deadline and is named with its last step."""
    if not gpus:
        return []
    began = time.monotonic()
    reached = mmap.mmap(-1, len(gpus))  # shared with the children: the step that each is at

    def question(place: int) -> deadline.Question:
        def reach(step: str) -> None:
            reached[place] = STEPS.index(step)

        return lambda: msgspec.msgpack.encode(_probe(gpus[place], reach, driver, leave_alone))

    with reached:
        raw = deadline.ask(
            {str(place): question(place) for place in range(len(gpus))},
            seconds=min(SECONDS, deadline.time_left(SECONDS)),
        )
        took = time.monotonic() - began
        steps = [STEPS[number] for number in reached[: len(gpus)]]
    return [
        _answer(gpu, raw[str(place)], step, took)
        for place, (gpu, step) in enumerate(zip(gpus, steps, strict=True))
    ]


def _answer(gpu: Gpu, raw: bytes | Unread, step: str, took: float) -> ProbeAnswer:
    if not isinstance(raw, Unread):
        return msgspec.msgpack.decode(raw, type=ProbeAnswer)
    return ProbeAnswer(
        probe=CudaProbe(
            index=gpu.index,
            uuid=gpu.uuid,
            step=step,
            code=NO_CODE,
            error=raw.why,
            seconds=round(took, 3),
            timed_out=raw.timed_out,
        )
    )


def _probe(
    gpu: Gpu,
    reach: Callable[[str], None],
    driver: Callable[[], CudaDriver],
    leave_alone: Callable[[CudaDevice], str],
) -> ProbeAnswer:
    """In a process of its own, which ends afterwards."""
    # Before the library is loaded, which reads them once.
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid or str(gpu.index)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    # An MPS daemon would start a server for us, and end that of another user.
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.devnull
    began = time.monotonic()
    answer = ProbeAnswer()
    step, skipped, code, error = "load", "", 0, ""
    try:
        cuda = driver()
        answer.library, answer.version = cuda_driver.loaded_library(), cuda.version()
        reach(step := "init")
        cuda.initialise()
        device = cuda.first_device()
        skipped = leave_alone(device)
        if not skipped:
            reach(step := "context")
            cuda.open_context(device)
            reach(step := "memory")
            pointer = cuda.allocate()
            reach(step := "copy")
            cuda.copy_there_and_back(pointer)
            cuda.close_context(device)
    except OSError as problem:
        code, error = NO_CODE, str(problem)
    except CudaFailure as failure:
        code, error = failure.code, failure.name
    answer.probe = CudaProbe(
        index=gpu.index,
        uuid=gpu.uuid,
        step=step,
        code=code,
        error=error,
        seconds=round(time.monotonic() - began, 3),
        skipped=skipped,
    )
    return answer


def _load_only() -> ProbeAnswer:
    """Which library a program would load, where no GPU told it."""

    def ask() -> bytes:
        try:
            version = CudaDriver().version()
        except (OSError, CudaFailure):
            version = ""
        return msgspec.msgpack.encode(
            ProbeAnswer(library=cuda_driver.loaded_library(), version=version)
        )

    answer = deadline.ask({"library": ask}, seconds=deadline.time_left(SECONDS) / 2)["library"]
    if isinstance(answer, Unread):
        return ProbeAnswer()
    return msgspec.msgpack.decode(answer, type=ProbeAnswer)
