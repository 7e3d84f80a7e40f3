from __future__ import annotations

from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

test_recognise = recognise_table(
    "container-flags",
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
