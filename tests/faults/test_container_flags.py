from __future__ import annotations

from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

test_recognise = recognise_table(
    "container-flags",
    recognises(
        wreckage("nvidia-container-cli: device error: 4: unknown device: unknown."),
        sure=0.85,
        saying=["GPU that this machine does not have (4: unknown device)"],
    ),
    recognises(
        wreckage(
            "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file: "
            "unknown."
        ),
        sure=0.7,
        saying=["could not put the GPUs into the container: open failed"],
    ),
    recognises(wreckage("unknown flag: --gpus"), sure=0.95, saying=["toolkit"]),
    recognises(
        wreckage(
            "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 8: Operation not "
            "permitted"
        ),
        sure=0.75,
        saying=["clone3", "20.10.10"],
    ),
    recognises(
        wreckage("WARNING: Could not find any nv files on this host!"),
        sure=0.6,
        saying=["without GPUs"],
    ),
    passes_over(
        wreckage(
            "nvidia-container-cli: initialization error: nvml error: driver/library version "
            "mismatch: unknown."
        )
    ),
    passes_over(
        wreckage("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4")
    ),
    passes_over(
        wreckage(
            "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 8: Resource "
            "temporarily unavai"
        )
    ),
    recognises(
        wreckage(
            'docker: Error response from daemon: could not select device driver "" with '
            "capabilities: [[gpu]]."
        ),
        sure=0.95,
        what="flags of the container",
        saying=["toolkit is missing", "--gpus all --network=host --ipc=host"],
    ),
    recognises(
        wreckage("Error response from daemon: unknown or invalid runtime name: nvidia"),
        sure=0.95,
        saying=["nvidia-ctk runtime configure"],
    ),
    recognises(
        wreckage('sysctl "net.ipv4.tcp_tw_reuse" not allowed in host network namespace: unknown.'),
        sure=0.95,
        what="--sysctl net.ipv4.tcp_tw_reuse",
        saying=["no network settings of its own", "sysctl net.ipv4.tcp_tw_reuse"],
    ),
    recognises(
        wreckage("sh: can't create /proc/sys/net/core/somaxconn: Read-only file system"),
        sure=0.85,
        what="/proc/sys/net/core/somaxconn",
        saying=["read-only inside a container"],
    ),
    recognises(
        wreckage("WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be"),
        sure=0.6,
        saying=["started without GPUs"],
    ),
    recognises(
        wreckage("Failed to initialize NVML: Unknown Error"),
        sure=0.7,
        saying=["lost its GPU devices"],
    ),
    passes_over(wreckage("OSError: [Errno 30] Read-only file system: '/ckpt/x'")),
    passes_over(wreckage("Failed to initialize NVML: Driver/library version mismatch")),
)
