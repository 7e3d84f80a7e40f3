from __future__ import annotations

from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

test_recognise = recognise_table(
    "fabric-manager",
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
        saying=["fabric manager 535.129.03 refuses to work with driver 535.161.08"],
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
