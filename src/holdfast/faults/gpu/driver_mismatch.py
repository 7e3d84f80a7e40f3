"""The NVIDIA driver, CUDA and the GPU are not compatible.

What you see   `CUDA driver version is insufficient for CUDA runtime version`, `The NVIDIA driver
               on your system is too old`, `Failed to initialize NVML: Driver/library version
               mismatch`, `forward compatibility was attempted on non supported HW` (804), `no
               kernel image is available for execution on the device` (209), `the provided PTX was
               compiled with an unsupported toolchain` (222).
Why            Three things have versions: the kernel module, the driver's user-space library
               (libcuda, in a container mounted from the host) and the CUDA that torch was built
               with. A driver runs its own CUDA and older ones, and within one major version newer
               ones with limits. An upgrade without a reboot leaves module and library at different
               versions. 'No kernel image' is about the GPU: torch was built without code for it.
How to be sure `holdfast check --only driver-mismatch` compares them. By hand: `nvidia-smi` shows
               the driver and the newest CUDA it can run, `cat /proc/driver/nvidia/version` the
               kernel module, `python -c "import torch; print(torch.version.cuda,
               torch.cuda.get_arch_list())"` what torch was built for.
Fix            Install a newer driver, or a torch built for an older CUDA
               (download.pytorch.org/whl/cu…). After a driver upgrade: reboot, or reload the module.
               For a new GPU: install a torch whose arch list contains it.
Known limits   Whether torch has code for the GPU is judged by its CUDA version, not by looking into
               it: wheels may leave out more. `check` knows only the torch of its own interpreter.
               Under minor-version compatibility PTX of a newer CUDA cannot be compiled; `check`
               does not warn of that, since torch brings compiled code. CUDA's `unknown error`
               names no cause, so that diagnosis is a guess.
Sources        https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
               https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
               https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
               https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html
               https://github.com/pytorch/pytorch/issues/157517 (Maxwell, Pascal, Volta)
               https://github.com/pytorch/pytorch/issues/153944 (Blackwell)
               https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
               pytorch/pytorch torch/cuda/__init__.py, c10/cuda/CUDAFunctions.cpp: the messages
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import CudaFacts, CudaProbe, MachineFacts, NvidiaFacts, known
from holdfast.analysis.machine.cuda_versions import code_for, oldest_driver, why_it_runs
from holdfast.analysis.machine.gpu_lines import gpu_numbers, together
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD302",
    slug="driver-mismatch",
    gpus_only=True,
    related=("version-skew", "fabric-manager", "gpu-unusable", "container-flags"),
)

MISMATCH, COMPAT_UNSUPPORTED = 803, 804
"""CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"""
NVML_MISMATCH, NOT_LOADED, NO_LIBRARY = 18, 9, 12
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH, _DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND"""


@FAULT.check(needs=("nvidia", "cuda", "software", "accelerators"))
def versions_do_not_fit(facts: MachineFacts) -> Finding:
    nvidia, cuda = known(facts.nvidia), known(facts.cuda)
    if not nvidia.present:
        return FAULT.does_not_apply("no NVIDIA driver on this machine")
    for look in (_mismatch, _compat, _missing):
        if found := look(facts, nvidia, cuda):
            return found
    if nvidia.error and not cuda.version:
        return FAULT.skipped(f"the NVIDIA driver could not be asked: {nvidia.error}")
    return _torch_does_not_fit(nvidia, cuda, known(facts.software).torch_cuda)


def _torch_does_not_fit(nvidia: NvidiaFacts, cuda: CudaFacts, torch: str) -> Finding:
    """Against the driver, and against the GPUs."""
    if not torch:
        return FAULT.ok(f"driver {nvidia.module}: library and kernel module fit; no CUDA in torch")
    version = cuda.version or nvidia.cuda
    rule = why_it_runs(version, torch)
    if rule is None:
        return FAULT.skipped("the driver does not say which CUDA it supports")
    if not rule:
        return _too_old(nvidia, cuda, torch)
    return _no_code(nvidia, cuda, torch) or FAULT.ok(
        f"driver {nvidia.module} (CUDA {version}) runs torch's CUDA {torch}: {rule}"
    )


def _mismatch(_: MachineFacts, nvidia: NvidiaFacts, cuda: CudaFacts) -> Finding | None:
    """Module and library of one driver."""
    probes = [probe for probe in cuda.probes if probe.code == MISMATCH and not cuda.compat]
    if nvidia.error_code != NVML_MISMATCH and not probes:
        return None
    module = f" {nvidia.module}" if nvidia.module else ""
    library = f"library{f' {nvidia.library}' if nvidia.library else ''}"
    if nvidia.error_code != NVML_MISMATCH:
        library = f"CUDA library {cuda.library or 'libcuda.so.1'}"
    return FAULT.error(
        f"the driver's {library} does not fit its kernel module{module}",
        reason="no CUDA program can start; the driver was upgraded without a reboot, or a "
        "container brings the library of another driver",
        evidence=[
            *([Evidence(quote=nvidia.error, source="NVML")] if nvidia.error else []),
            *_probe_evidence(probes, cuda),
            *_versions(nvidia),
        ],
        fix="reboot the machine, or `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && "
        "sudo modprobe nvidia` while nothing uses the GPUs; restart containers afterwards",
    )


def _compat(_: MachineFacts, nvidia: NvidiaFacts, cuda: CudaFacts) -> Finding | None:
    """A library of the forward-compatibility package on a driver or GPU that it is not for."""
    codes = (MISMATCH, COMPAT_UNSUPPORTED)
    probes = [probe for probe in cuda.probes if probe.code in codes]
    if not probes:
        return None
    where = cuda.library.rpartition("/")[0] or "/usr/local/cuda/compat"
    return FAULT.error(
        f"CUDA's forward-compatibility library does not work here: {cuda.library or 'libcuda'}",
        reason="programs load it in place of the driver's own; it works with some older drivers on "
        "data-centre GPUs only, and no CUDA program can start",
        evidence=[*_probe_evidence(probes, cuda), *_versions(nvidia)],
        fix=f"take {where} out of LD_LIBRARY_PATH and of /etc/ld.so.conf.d, or use an image for a "
        "CUDA that the driver runs; reboot if the driver was just upgraded",
    )


def _missing(facts: MachineFacts, nvidia: NvidiaFacts, cuda: CudaFacts) -> Finding | None:
    """A part of the driver is not there, though GPUs are."""
    devices = [node for node in known(facts.accelerators) if "/nvidia" in node]
    if nvidia.error_code in (NOT_LOADED, NO_LIBRARY) and nvidia.unbound and not devices:
        return _no_driver(facts, nvidia)
    if nvidia.error_code == NOT_LOADED and not devices:
        return FAULT.does_not_apply("the NVIDIA driver is not loaded, and no GPU device is here")
    if nvidia.error_code == NOT_LOADED:
        return FAULT.error(
            "the NVIDIA kernel module is not loaded, though GPU devices are there",
            reason="no CUDA program can start",
            evidence=[Evidence(quote=nvidia.error, source="NVML")],
            fix="`sudo modprobe nvidia nvidia_uvm` and read `dmesg | grep NVRM`; after a kernel "
            "upgrade the module must be built again (DKMS)",
        )
    probes = [probe for probe in cuda.probes if probe.step == "load" and probe.code]
    if not probes or not known(facts.software).torch_cuda:
        return None
    return FAULT.error(
        "GPUs are there, but the CUDA driver library (libcuda.so.1) cannot be loaded",
        reason="torch cannot use them; a container gets this library from its machine",
        evidence=_probe_evidence(probes, cuda),
        fix="start the container with `--gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; "
        "on the machine itself install the driver's compute libraries",
    )


def _no_driver(facts: MachineFacts, nvidia: NvidiaFacts) -> Finding:
    cards = text.counted(nvidia.unbound, "NVIDIA GPU")
    if not known(facts.software).torch_cuda:
        return FAULT.does_not_apply(f"{cards} without a driver, and torch has no CUDA")
    return FAULT.warning(
        f"{cards} on the PCI bus without a kernel driver",
        reason="torch will find no GPU; after an upgrade of the kernel the driver's module must be "
        "built again, or none was ever installed",
        evidence=[Evidence(quote=nvidia.error, source="NVML")],
        fix="`sudo modprobe nvidia`, and read `sudo dmesg | grep -i nvrm`; if there is no such "
        "module, `dkms status` says whether it was built for this kernel",
    )


def _too_old(nvidia: NvidiaFacts, cuda: CudaFacts, torch: str) -> Finding:
    oldest = oldest_driver(torch)
    version = cuda.version or nvidia.cuda
    newer = f"a driver from branch {oldest} on" if oldest else "a newer driver"
    return FAULT.error(
        f"driver {nvidia.module} is too old for torch: it runs CUDA {version}, torch is built for "
        f"{torch}",
        reason="torch finds no GPU (`The NVIDIA driver on your system is too old`): a driver runs "
        "programs of its own major version of CUDA and of older ones",
        evidence=[
            Evidence(quote=f"torch's CUDA {torch}", source="torch/version.py"),
            Evidence(quote=f"CUDA {version}", source=cuda.library or "NVML"),
            *_versions(nvidia),
        ],
        fix=f"install {newer}, or {OTHER_TORCH}",
    )


def _no_code(nvidia: NvidiaFacts, cuda: CudaFacts, torch: str) -> Finding | None:
    """GPUs of the job that are too old or too new for torch's CUDA."""
    tried = {probe.uuid for probe in cuda.probes}
    gpus = [gpu for gpu in nvidia.gpus if not tried or gpu.uuid in tried]
    best = {gpu.index: code_for(gpu.architecture, torch) for gpu in gpus}
    lacking = [gpu for gpu in gpus if best[gpu.index] in ("none", "intermediate")]
    if not lacking:
        return None
    names = text.names(gpu.name or gpu.architecture for gpu in lacking)
    which = f"{gpu_numbers(gpu.index for gpu in lacking)} ({names})"
    evidence = [
        Evidence(quote=line, source="NVML")
        for line in together((gpu.index, f"{gpu.name}, {gpu.architecture}") for gpu in lacking)
    ]
    evidence.append(Evidence(quote=f"torch's CUDA {torch}", source="torch/version.py"))
    if any(best[gpu.index] == "none" for gpu in lacking):
        return FAULT.error(
            f"torch has no code for {which}: it is built with CUDA {torch}",
            reason="CUDA 13 no longer makes code for Maxwell, Pascal and Volta (`no kernel image "
            "is available for execution on the device`)",
            evidence=evidence,
            fix="install a torch built with CUDA 12.6, or use newer GPUs",
        )
    return FAULT.warning(
        f"torch has no compiled code for {which}: it is built with CUDA {torch}",
        reason="code for Blackwell comes with CUDA 12.8; an older torch fails there (`no kernel "
        "image is available`), unless it was built with PTX for newer GPUs",
        evidence=evidence,
        fix="install a torch built with CUDA 12.8 or newer",
    )


def _probe_evidence(probes: Sequence[CudaProbe], cuda: CudaFacts) -> list[Evidence]:
    told = ((p.index, p.error + (f" ({p.code})" if p.code > 0 else "")) for p in probes)
    return [Evidence(quote=line, source=cuda.library or "CUDA") for line in together(told)]


def _versions(nvidia: NvidiaFacts) -> list[Evidence]:
    parts = (
        ("kernel module", nvidia.module, "/proc/driver/nvidia/version"),
        ("library", nvidia.library, "libnvidia-ml"),
    )
    return [Evidence(quote=f"{name} {v}", source=source) for name, v, source in parts if v]


OTHER_TORCH = (
    "install a torch built for a CUDA this driver can run (see the top line of nvidia-smi)"
)

# --- explain -------------------------------------------------------------------------------------

TOO_OLD = FAULT.log_pattern(
    "too-old",
    r"CUDA driver version is insufficient for CUDA runtime|cudaErrorInsufficientDriver"
    r"|NVIDIA driver on your system is too old(?: \(found version (?P<found>\d+)\))?"
    r"|unsatisfied condition: cuda ?>= ?(?P<wanted>[\d.]+)"
    r"|CUDA Driver version found is \d{4,6}\. Minimum requirement is \d"
    r"|PTX was compiled with an unsupported toolchain|UNSUPPORTED_PTX_VERSION"
    r"|cudaErrorUnsupportedPtxVersion",
    anchors=(
        "CUDA driver version is insufficient",
        "InsufficientDriver",
        "driver on your system is too old",
        "unsatisfied condition: cuda",
        "CUDA Driver version found is ",
        "an unsupported toolchain",
        "UNSUPPORTED_PTX_VERSION",
        "UnsupportedPtxVersion",
    ),
    example="RuntimeError: The NVIDIA driver on your system is too old (found version 11040). "
    "Please update your GPU driver",
)
LIBRARY = FAULT.log_pattern(
    "library",
    r"[Dd]river/library version mismatch|API mismatch: the client has the version "
    r"(?P<library>[\d.]+)|kernel module has the version (?P<module>[\d.]+)"
    r"|unsupported display driver / cuda driver combination"
    r"|detected an NVML/RM version mismatch|NVMLError_LibRmVersionMismatch"
    r"|cudaErrorSystemDriverMismatch|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    r"|kernel version (?P<running>[\d.]{1,20}) does not match DSO version (?P<dso>[\d.]{1,20})",
    anchors=(
        "river/library version mismatch",
        "NVML/RM version mismatch",
        "LibRmVersionMismatch",
        "SystemDriverMismatch",
        "SYSTEM_DRIVER_MISMATCH",
        "does not match DSO version",
        "API mismatch: the client",
        "kernel module has the version",
        "unsupported display driver",
    ),
    example="Failed to initialize NVML: Driver/library version mismatch",
)
COMPATIBILITY = FAULT.log_pattern(
    "compatibility",
    r"forward compatibility was attempted on non supported HW|CompatNotSupportedOnDevice"
    r"|COMPAT_NOT_SUPPORTED_ON_DEVICE",
    anchors=(
        "forward compatibility was attempted",
        "CompatNotSupportedOnDevice",
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
    ),
    example="RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward "
    "compatibility was attempted on non supported HW",
)
NO_CODE = FAULT.log_pattern(
    "no-code",
    r"no kernel image is available for execution|cudaErrorNoKernelImageForDevice"
    r"|CUDA capability (?P<arch>sm_\w+) is not compatible with the current PyTorch"
    r"|device kernel image is invalid|CUDA_ERROR_NO_BINARY_FOR_GPU|hipErrorNoBinaryForGpu"
    r"|(?:CUDA|HIP) error: invalid device function",
    anchors=(
        "no kernel image is available",
        "NoKernelImageForDevice",
        "is not compatible with the current PyTorch",
        "device kernel image is invalid",
        "NO_BINARY_FOR_GPU",
        "hipErrorNoBinaryForGpu",
        "error: invalid device function",
    ),
    example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
)
NO_DRIVER = FAULT.log_pattern(
    "no-driver",
    r"Found no NVIDIA driver on your system|libcuda\.so\.1: cannot open shared object"
    r"|couldn't communicate with the NVIDIA driver|CUDA driver is a stub library"
    r"|Failed to find CUDA library|nvml error: driver not loaded"
    r"|NVMLError_DriverNotLoaded|NVML: Driver Not Loaded"
    r"|(?:nvidia-container-cli: .{0,200}|Failed to open )"
    r"libnvidia-ml\.so\.1: (?:libnvidia-ml\.so\.1: )?cannot open",
    anchors=(
        "Found no NVIDIA driver",
        "libcuda.so.1: cannot open",
        "communicate with the NVIDIA",
        "is a stub library",
        "Failed to find CUDA library",
        "driver not loaded",
        "DriverNotLoaded",
        "Driver Not Loaded",
        "libnvidia-ml.so.1: cannot open",
    ),
    example="RuntimeError: Found no NVIDIA driver on your system. Please check that you have an "
    "NVIDIA GPU and installed a driver",
)
UNKNOWN = FAULT.log_pattern(
    "unknown",
    r"CUDA unknown error - this may be due to|CUDA (?:driver )?error: unknown error"
    r"|from cudaGetDeviceCount\(\)\..{0,150}Error 999: "
    r"|CUDA_ERROR_UNKNOWN\b|cudaErrorUnknown\b|cuda runtime error \((?:30|999)\)",
    anchors=(
        "CUDA unknown error",
        "rror: unknown error",
        " Error 999: ",
        "CUDA_ERROR_UNKNOWN",
        "cudaErrorUnknown",
        "runtime error (30)",
        "runtime error (999)",
    ),
    example="RuntimeError: CUDA unknown error - this may be due to an incorrectly set up "
    "environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start.",
)
TOOLKIT = FAULT.log_pattern(
    "toolkit",
    r"detected CUDA version \((?P<toolkit>[\d.]+)\) mismatches the version that was used to compile"
    r"(?:\s+PyTorch \((?P<torch>[\d.]+)\))?"
    r"|Installed CUDA version (?P<nvcc>[\d.]+) does not match the version torch was compiled with "
    r"(?P<built>[\d.]+)",
    anchors=("mismatches the version that was used", "does not match the version torch was"),
    example="RuntimeError: The detected CUDA version (11.8) mismatches the version that was used "
    "to compile PyTorch (12.4).",
)
NEXT = (
    "nvidia-smi; cat /proc/driver/nvidia/version; python -c 'import torch; "
    "print(torch.version.cuda, torch.cuda.get_arch_list())'"
)
CASES = (
    (
        LIBRARY,
        0.97,
        (
            "the driver's library and kernel module have different versions, as after an upgrade "
            "without a reboot"
        ),
        "reboot the machine, or unload and reload the nvidia modules while nothing uses the GPUs",
    ),
    (
        TOO_OLD,
        0.95,
        "the driver is too old for the CUDA this program was built with",
        f"install a newer driver, or {OTHER_TORCH}",
    ),
    (
        COMPATIBILITY,
        0.95,
        (
            "the image contains a CUDA compatibility package (cuda-compat), which this GPU does "
            "not support; a driver upgrade without a reboot gives the same error"
        ),
        (
            "remove the cuda-compat folder from LD_LIBRARY_PATH, or use an image whose CUDA the "
            "machine's driver can run; reboot if the driver was just upgraded"
        ),
    ),
    (
        NO_CODE,
        0.93,
        (
            "torch or an extension was built for other GPU architectures and has no code for this "
            "GPU"
        ),
        (
            "install a torch (and extensions) whose arch list contains this GPU; build extensions "
            "with TORCH_CUDA_ARCH_LIST set to it"
        ),
    ),
    (
        TOOLKIT,
        0.95,
        "the CUDA toolkit that builds an extension differs from the CUDA torch was built with",
        "point CUDA_HOME at a toolkit of torch's CUDA version, or install a matching torch",
    ),
    (
        NO_DRIVER,
        0.85,
        (
            "no NVIDIA driver is reachable: none is installed, or the container was started "
            "without GPUs"
        ),
        "start the container with `--gpus all`; on the machine itself, install the driver",
    ),
    (
        UNKNOWN,
        0.4,
        (
            "CUDA failed without a reason (unknown error): usually the driver's modules or device "
            "files are broken, as after an upgrade or after the machine was suspended"
        ),
        (
            "start a new process with CUDA_VISIBLE_DEVICES set before it starts; then `sudo "
            "modprobe nvidia_uvm`, or reboot; a container needs /dev/nvidia-uvm as well"
        ),
    ),
)


@FAULT.explain
def driver_cuda_gpu_incompatible(wreckage: Wreckage) -> Diagnosis | None:
    for pattern, confidence, what, fix in CASES:
        seen = wreckage.seen(pattern)
        only_warned = len(sightings.saying(seen, "Warning: |dso_loader")) == len(seen)
        if seen and only_warned and pattern is NO_DRIVER:
            continue  # torch warns of it on every machine without GPUs, also where none is needed
        if seen:
            line = seen[0].line
            return FAULT.diagnosis(
                f"{sightings.who(seen, 'this program')}: {what}{_versions_in_text(wreckage, seen)}",
                confidence=min(confidence, 0.6) if only_warned else confidence,
                seen=seen,
                culprit=Culprit(rank=line.rank, host=line.host, what=_culprit_name(wreckage)),
                fix=fix,
                next=NEXT,
            )
    return None


def _versions_in_text(wreckage: Wreckage, seen: Sequence[Sighting]) -> str:
    """The versions that the log shows."""
    found, wanted = sightings.field(seen, "found"), sightings.field(seen, "wanted")
    library = sightings.field(seen, "library") or sightings.field(seen, "dso")
    module = sightings.field(seen, "module") or sightings.field(seen, "running")
    toolkit = sightings.field(seen, "toolkit") or sightings.field(seen, "nvcc")
    built = sightings.field(seen, "torch") or sightings.field(seen, "built")
    arch = sightings.field(seen, "arch")
    parts = [
        f"the driver can run CUDA {_cuda(found)}" if found else "",
        f"CUDA {wanted} or newer is required" if wanted else "",
        f"library {library}" if library else "",
        f"kernel module {module}" if module else "",
        f"toolkit {toolkit}" if toolkit else "",
        f"torch's CUDA {built}" if built else "",
        f"the GPU is {arch}" if arch else "",
        f"driver {driver}" if (driver := wreckage.versions.get("driver")) else "",
        f"CUDA {cuda}" if (cuda := wreckage.versions.get("cuda")) else "",
    ]
    shown = ", ".join(part for part in parts if part)
    return f" ({shown})" if shown else ""


def _culprit_name(wreckage: Wreckage) -> str:
    driver = wreckage.versions.get("driver")
    return f"NVIDIA driver {driver}" if driver else "NVIDIA driver and CUDA versions"


def _cuda(number: str) -> str:
    """CUDA's own number: 11040 is 11.4."""
    value = int(number)
    return f"{value // 1000}.{value % 1000 // 10}" if value >= 1000 else number
