"""Log lines of GPUs that break: CUDA's, NVML's, the kernel's and NCCL's."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_pattern = functools.partial(LogPattern, slug="gpu-hardware")

UNCORRECTABLE = _pattern(
    name="gpu-hardware: ecc",
    pattern=r"uncorrectable ECC error|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE"
    r"|[Uu]ncorrectable NVLink error|NvlinkUncorrectable|NVLINK_UNCORRECTABLE"
    r"|[Rr]emapping [Ff]ailure.*[Yy]es|GPU requires reset|NV_ERR_RESET_REQUIRED"
    # NVRx's health check, of the recovery that the driver asks for.
    r"|GPU (?P<index>\d{1,3}): Requires (?:a reset|a node reboot) to recover",
    anchors=(
        "uncorrectable ECC",
        "ECCUncorrectable",
        "ECC_UNCORRECTABLE",
        "ncorrectable NVLink",
        "NvlinkUncorrectable",
        "NVLINK_UNCORRECTABLE",
        "apping Failure",
        "GPU requires reset",
        ": Requires a reset to recover",
        ": Requires a node reboot to recover",
        "NV_ERR_RESET_REQUIRED",
    ),
    example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
)
GPU_LOST = _pattern(
    name="gpu-hardware: lost",
    pattern=r"(?:GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F]{4}:[0-9a-fA-F:.]{1,12}).{0,200}?)?"
    r"fallen off the bus"
    r"|GPU is lost|NVMLError_GpuIsLost|NV_ERR_GPU_IS_LOST"
    r"|Unable to determine the device handle for (?:GPU|gpu) ?(?P<handle>[\da-fA-F:.]*)"
    r"|GPU (?P<failed>[\da-fA-F:.]+): RmInitAdapter failed",
    anchors=(
        "fallen off the bus",
        "GPU is lost",
        "GpuIsLost",
        "NV_ERR_GPU_IS_LOST",
        "Unable to determine the device handle",
        "RmInitAdapter failed",
    ),
    example="Unable to determine the device handle for GPU 0000:3D:00.0: Unknown Error",
)
LINK = _pattern(
    name="gpu-hardware: link",
    pattern=r"(?:(?<![\w:.])(?P<port>[0-9a-fA-F]{4}:[0-9a-fA-F:.]{1,12}):? ?)?"
    r"(?:AER: )?PCIe Bus Error: severity=(?P<severity>\w+)"
    r"|nvidia (?P<gpu>[0-9a-fA-F]{4}:[0-9a-fA-F:.]+): AER: can't recover"
    r"|AER: (?:Multiple )?Uncorrected \((?P<kind>\w+)\) error"
    r"|pciehp.*(?:Link Down|Card not present)|AER: device recovery failed",
    anchors=("PCIe Bus Error", "AER: ", "Link Down", "Card not present"),
    example="[12345.678] pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), "
    "type=Transaction Layer, (Requester ID)",
    role=Role.CONFIRMATION,
)
NO_PEER = _pattern(
    name="gpu-hardware: no-peer",
    pattern=r"P2P is disabled between NVLINK connected GPUs (?P<one>\d+) and (?P<other>\d+)",
    anchors=("P2P is disabled between NVLINK",),
    example="vm:1009:1009 [0] graph/paths.cc:325 NCCL WARN P2P is disabled between NVLINK "
    "connected GPUs 1 and 0. This should not be the case given their connectivity",
)
CONTAINED = _pattern(
    name="gpu-hardware: contained",
    pattern=r"Invalid access of peer GPU memory over nvlink or a hardware error"
    r"|cudaErrorContained\b|CUDA_ERROR_CONTAINED\b",
    anchors=("over nvlink or a hardware", "cudaErrorContained", "CUDA_ERROR_CONTAINED"),
    example="torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or "
    "a hardware error",
)
RESET = _pattern(
    name="gpu-hardware: reset",
    pattern=r"amdgpu (?P<pci>[0-9a-f]{4}:[0-9a-f:.]{5,10}): .{0,40}GPU reset begin"
    r"|\*ERROR\* ring \S{1,32} timeout",
    anchors=("GPU reset begin", "*ERROR* ring "),
    example="amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
    role=Role.CONFIRMATION,
)
PLUGIN = _pattern(
    name="gpu-hardware: plugin",
    pattern=r"XidCriticalError: Xid=(?P<number>\d{1,4}) on Device=(?P<pci>[\w\-]{1,64})",
    anchors=("XidCriticalError: Xid=",),
    example="XidCriticalError: Xid=48 on Device=GPU-0a1b2c3d; marking device as unhealthy.",
    role=Role.CONFIRMATION,
)

ALL: tuple[LogPattern, ...] = (UNCORRECTABLE, GPU_LOST, LINK, NO_PEER, CONTAINED, RESET, PLUGIN)
