from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

test_explain = explain_table(
    "driver-mismatch",
    recognises(
        wreckage("RuntimeError: HIP error: invalid device function"),
        sure=0.93,
        saying=["no code for this GPU"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Failed to find CUDA library libcuda.so (NCCL_CUDA_PATH='') : libcuda.so: "
            "cannot open"
        ),
        sure=0.85,
        saying=["no NVIDIA driver"],
    ),
    recognises(
        wreckage(
            "nvidia-container-cli: initialization error: nvml error: driver/library version "
            "mismatch: unknown."
        ),
        sure=0.97,
        saying=["upgrade without a reboot"],
    ),
    recognises(
        wreckage("NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch."),
        sure=0.97,
        saying=["reboot"],
    ),
    recognises(
        wreckage(
            "kernel version 470.57.2 does not match DSO version 470.63.1 -- cannot find working "
            "devices"
        ),
        sure=0.97,
        saying=["library 470.63.1, kernel module 470.57.2"],
    ),
    recognises(
        wreckage(
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: "
            "cannot open sh"
        ),
        sure=0.85,
        saying=["no NVIDIA driver is reachable"],
    ),
    recognises(
        wreckage(
            "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown."
        ),
        sure=0.85,
        saying=["install the driver"],
    ),
    recognises(wreckage("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), sure=0.95, saying=["too old"]),
    recognises(
        wreckage(
            "[rank0]: RuntimeError: CUDA unknown error - this may be due to an incorrectly set up "
            "environment"
        ),
        sure=0.4,
        rank=0,
        saying=["failed without a reason", "nvidia_uvm"],
    ),
    passes_over(
        wreckage(
            "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load "
            "dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file"
        )
    ),
    recognises(
        wreckage(
            "[rank0]: RuntimeError: The NVIDIA driver on your system is too old (found version "
            "11040). Please update your GPU driver"
        ),
        sure=0.95,
        rank=0,
        saying=["the driver can run CUDA 11.4", "too old"],
    ),
    recognises(
        wreckage(
            "vm:1:1 [0] NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA "
            "runtime version'",
            versions={"driver": "410.48", "cuda": "10.1"},
        ),
        sure=0.95,
        what="NVIDIA driver 410.48",
        saying=["driver 410.48, CUDA 10.1"],
    ),
    recognises(
        wreckage("Failed to initialize NVML: Driver/library version mismatch"),
        sure=0.97,
        saying=["reboot"],
    ),
    recognises(
        wreckage("Error 804: forward compatibility was attempted on non supported HW"),
        sure=0.95,
        saying=["cuda-compat"],
    ),
    recognises(
        wreckage("[rank1]: CUDA error: no kernel image is available for execution on the device"),
        sure=0.93,
        rank=1,
        saying=["no code for this GPU", "TORCH_CUDA_ARCH_LIST"],
    ),
    recognises(
        wreckage(
            "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the "
            "current PyTorch installation."
        ),
        sure=0.93,
        saying=["the GPU is sm_120"],
    ),
    recognises(
        wreckage(
            "The detected CUDA version (11.8) mismatches the version that was used to compile "
            "PyTorch (12.4)."
        ),
        sure=0.95,
        saying=["toolkit 11.8, torch's CUDA 12.4"],
    ),
    recognises(
        wreckage("ImportError: libcuda.so.1: cannot open shared object file: No such file"),
        sure=0.85,
        saying=["--gpus all"],
    ),
    recognises(
        wreckage(
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found "
            "version 11040)."
        ),
        sure=0.6,
        saying=["CUDA 11.4"],
    ),
    passes_over(
        wreckage("UserWarning: CUDA initialization: Found no NVIDIA driver on your system. Please")
    ),
    passes_over(wreckage("NCCL version 2.28.9+cuda13.0", "Driver Version: 550.54.15")),
)
