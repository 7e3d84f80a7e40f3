from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.analysis.machine import CudaFacts, Gpu
from holdfast.check.readers import cuda
from holdfast.check.readers.cuda import gpus_of_job, list_gpus, probe_each, probe_twice, read_cuda
from holdfast.system.cuda_driver import CudaDevice
from tests.check.readers.trees import plant
from tests.fakes.cuda import driver
from tests.fakes.nvml import profiles
from tests.fakes.nvml.install import environment, install
from tests.fakes.nvml.state import FakeDriver
from tests.faults.machines import a_plan

A, B, C = (f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "abc")
INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 41
GPU UUID: \t {uuid}
Bus Location: \t 0000:{place}:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""


def listed(*uuids: str) -> list[Gpu]:
    return [Gpu(index=n, uuid=uuid) for n, uuid in enumerate(uuids)]


def tree(root: Path, **minors: int) -> str:
    """A machine with GPUs at these places; a device node for each."""
    files = {"/dev/nvidiactl": "", "/proc/driver/nvidia/version": "NVRM version: …"}
    for (place, minor), uuid in zip(sorted(minors.items()), (A, B, C), strict=False):
        text = INFORMATION.format(uuid=uuid, place=place.removeprefix("at_"), minor=minor)
        files[f"/proc/driver/nvidia/gpus/0000:{place[3:]}:00.0/information"] = text
        files[f"/dev/nvidia{minor}"] = ""
    return plant(root, files)


def test_gpus_are_counted_by_their_place_not_by_their_device_node(tmp_path: Path) -> None:
    root = tree(tmp_path, at_3d=1, at_1b=0, at_9a=2)
    assert list_gpus(root) == listed(A, B, C)
    os.unlink(tmp_path / "dev/nvidia0")  # the container got two of three
    assert list_gpus(root) == listed(B, C)


def test_a_gpu_that_the_driver_has_not_started_has_no_name_yet(tmp_path: Path) -> None:
    root = tree(tmp_path, at_1b=0)
    path = tmp_path / "proc/driver/nvidia/gpus/0000:1b:00.0/information"
    path.write_text(path.read_text().replace(A, "GPU-????????-????-????-????-????????????"))
    assert list_gpus(root) == [Gpu(index=0)]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [(None, [A, B, C]), ("0,2", [A, C]), ("GPU-bbbb", [B]), ("", []), ("NoDevFiles", [])],
)
def test_only_gpus_that_the_job_sees_are_tried(wanted: str | None, chosen: list[str]) -> None:
    assert [gpu.uuid for gpu in gpus_of_job(listed(A, B, C), wanted)] == chosen


def test_an_idle_gpu_is_tried_to_the_end_and_one_in_use_is_only_initialised() -> None:
    free, used = (
        probe_each(listed(A), driver, lambda _device, why=why: why)[0].probe  # type: ignore[misc]
        for why in ("", "another program uses this GPU")
    )
    assert free is not None
    assert used is not None
    assert (free.step, free.code, free.error, free.skipped) == ("copy", 0, "", "")
    assert (used.step, used.code, used.skipped) == ("init", 0, "another program uses this GPU")


@pytest.mark.parametrize(
    ("call", "code", "step"),
    [
        ("cuInit", 802, "init"),
        ("cuDeviceGet", 100, "init"),
        ("cuDevicePrimaryCtxRetain", 46, "context"),
        ("cuMemAlloc_v2", 2, "memory"),
        ("cuMemcpyDtoH_v2", 214, "copy"),
    ],
)
def test_the_step_that_failed_is_named(call: str, code: int, step: str) -> None:
    answer = probe_each(listed(A), lambda: driver(failing={call: code}), lambda _device: "")[0]
    assert answer.probe is not None
    assert (answer.probe.step, answer.probe.code) == (step, code)
    assert answer.probe.error.startswith("CUDA_ERROR_")
    assert answer.version == "13.0"


def test_a_gpu_that_never_answers_costs_its_deadline_and_the_others_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "SECONDS", 2.5)

    def one_hangs() -> object:
        stuck = os.environ["CUDA_VISIBLE_DEVICES"] == B
        return driver(hanging=["cuMemAlloc_v2"] if stuck else [])

    probes = [answer.probe for answer in probe_each(listed(A, B), one_hangs, lambda _device: "")]  # type: ignore[arg-type]
    assert [(p.uuid, p.step, p.timed_out) for p in probes if p] == [
        (A, "copy", False),
        (B, "memory", True),
    ]
    assert "no answer" in (probes[1].error if probes[1] else "")


def test_a_failure_that_passes_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try is a process of its own: what they have in common is a file."""
    tries = tmp_path / "tries"

    def fails_once() -> object:
        uuid = os.environ["CUDA_VISIBLE_DEVICES"]
        with tries.open("a") as file:
            file.write(f"{uuid}\n")
        first = uuid == B and tries.read_text().split().count(B) == 1
        return driver(failing={"cuInit": 999} if first else {})

    monkeypatch.setattr(cuda.probe_each, "__defaults__", (fails_once, lambda _device: ""))
    probes = [answer.probe for answer in probe_twice(listed(A, B))]
    assert [(p.uuid, p.code) for p in probes if p] == [(A, 0), (B, 0)]
    assert sorted(tries.read_text().split()) == [A, B, B]


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (profiles.one_passed_through(), ""),
        (profiles.container(), "another program uses this GPU"),
        (profiles.mismatch(), "not known"),
        (msgspec.structs.replace(profiles.cloud_t4(), gpus=()), "not known"),
    ],
)
def test_nvml_says_whether_a_gpu_is_free(
    monkeypatch: pytest.MonkeyPatch, machine: FakeDriver, reason: str
) -> None:
    install(monkeypatch, machine)
    bus_id = machine.gpus[0].bus_id if machine.gpus else "00000000:00:06.0"
    why = cuda.why_leave_alone(CudaDevice(handle=0, uuid="", bus_id=bus_id))
    assert (reason in why) if reason else why == ""


def test_no_library_is_told_as_such() -> None:
    def missing() -> object:
        raise OSError("libcuda.so.1: cannot open shared object file")

    probe = probe_each(listed(A), missing)[0].probe  # type: ignore[arg-type]
    assert probe is not None
    assert (probe.step, probe.code) == ("load", -1)
    assert "libcuda.so.1" in probe.error


def test_nothing_is_loaded_where_there_is_no_driver(tmp_path: Path) -> None:
    found = read_cuda(a_plan(), str(tmp_path))
    assert (found.library, found.probes) == ("", ())


def test_a_job_without_gpus_tries_none(tmp_path: Path) -> None:
    root = tree(tmp_path, at_1b=0)
    plan = a_plan(environment={"CUDA_VISIBLE_DEVICES": ""})
    assert read_cuda(plan, root).probes == ()


LOOK = """
import os, sys, msgspec
from holdfast.check.readers.cuda import read_cuda
from tests.faults.machines import a_plan
sys.stdout.buffer.write(msgspec.json.encode(read_cuda(a_plan(), sys.argv[1])))
"""


def test_a_real_library_is_loaded_and_driven(tmp_path: Path) -> None:
    """The whole reader in a process of its own, with a libcuda made of C and a fake NVML."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("needs a C compiler")
    folder = tmp_path / "compat"
    folder.mkdir()
    source = Path(__file__).parents[2] / "fakes/libcuda.c"
    build = [compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)]
    subprocess.run(build, check=True)
    root = tree(tmp_path / "root", at_06=0)

    def look(**more: str) -> CudaFacts:
        given = environment(profiles.one_passed_through())
        command = [sys.executable, "-c", LOOK, root]
        shown = subprocess.run(
            command,
            env={**given, "LD_LIBRARY_PATH": str(folder), **more},
            check=True,
            capture_output=True,
        )
        return msgspec.json.decode(shown.stdout, type=CudaFacts)

    healthy = look()
    assert healthy.library == str(folder / "libcuda.so.1")
    assert (healthy.compat, healthy.version) == (True, "12.8")
    assert [(p.uuid, p.step, p.code, p.skipped) for p in healthy.probes] == [(A, "copy", 0, "")]
    not_ready = look(CUDA_FAKE_FAILS="cuInit:802").probes[0]
    assert (not_ready.step, not_ready.code) == ("init", 802)
    assert not_ready.error == "CUDA_ERROR_SYSTEM_NOT_READY"
