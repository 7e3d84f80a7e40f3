from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

test_explain = explain_table(
    "fabric-manager",
    recognises(
        wreckage(
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 "
            "'out of memory'."
        ),
        sure=0.5,
        saying=["no room for another multicast group", "NCCL_NVLS_ENABLE=0"],
    ),
    recognises(
        wreckage("[802] Call to cuInit results in UNKNOWN_CUDA_ERROR"),
        sure=0.95,
        saying=["fabric manager is down"],
    ),
    recognises(wreckage("cudaGetDeviceProperties returned 802"), sure=0.95, saying=["802"]),
    recognises(
        wreckage("systemd[1]: Failed to start NVIDIA fabric manager service."),
        sure=0.8,
        saying=["did not start"],
    ),
    passes_over(wreckage("systemd[1]: Started NVIDIA fabric manager service.")),
    passes_over(wreckage("the sampler returned 802 rows")),
    recognises(
        wreckage("[rank3]: init.cc:1843 NCCL WARN Cuda failure 802 'system not yet initialized'"),
        sure=0.95,
        rank=3,
        saying=["fabric manager is down", "systemctl status nvidia-fabricmanager"],
    ),
    recognises(
        wreckage(
            "RuntimeError: cuda runtime error (802) : system not yet initialized at THC.cpp:50"
        ),
        sure=0.95,
        saying=["802"],
    ),
    recognises(
        wreckage(
            "[rank3]: RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system "
            "not yet initialized",
            "fabric manager NVIDIA GPU driver interface version 535.129.03 don't match with driver "
            "version 535.161.08. Please update with matching NVIDIA driver package.",
        ),
        sure=0.97,
        rank=3,
        saying=["fabric manager 535.129.03 refuses driver 535.161.08"],
    ),
    recognises(
        wreckage("[rank0]: transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'"),
        sure=0.8,
        rank=0,
        saying=["multicast (NVLS)", "NCCL_NVLS_ENABLE=0"],
    ),
    recognises(
        wreckage("mnnvl.cc:70 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this"),
        sure=0.85,
        saying=["IMEX"],
    ),
    recognises(
        wreckage("systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'."),
        sure=0.8,
        saying=["did not start"],
    ),
    passes_over(
        wreckage("[rank0]: transport/nvls.cc:254 NCCL WARN Cuda failure 2 'out of memory'")
    ),
    passes_over(wreckage("[rank0]: RuntimeError: Default process group has not been initialized")),
    passes_over(wreckage("nvidia-fabricmanager.service: Started FabricManager service.")),
)
