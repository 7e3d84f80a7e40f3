from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import compose, shell
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

test_explain = explain_table(
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
        saying=["could not add the GPUs to the container: open failed"],
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
        saying=["toolkit is not installed", "--gpus all --network=host --ipc=host"],
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
        saying=["it has no network namespace", "sysctl net.ipv4.tcp_tw_reuse"],
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

test_lint = lint_table(
    "container-flags",
    flags(
        "error",
        shell(
            """
            docker run --rm --gpus all --network=host \\
              --sysctl net.core.somaxconn=1024 --ipc=host \\
              trainer:1 bash -c 'torchrun x'
            """
        ),
        lines=[2],
        saying=[
            "net.core.somaxconn",
            "will not start",
            "`docker run --rm --gpus all --network=host --ipc=host trainer:1 bash -c 'torchrun x'`",
        ],
    ),
    flags(
        "error",
        shell("podman run --net host --sysctl=net.ipv4.tcp_keepalive_time=60 $IMAGE ./go.sh\n"),
        lines=[1],
        saying=["`podman run --net host $IMAGE ./go.sh`"],
    ),
    flags(
        "error",
        shell("docker run --network=host --sysctl vm.x=1 --sysctl net.core.y=1 img 'a b' $C\n"),
        lines=[1, 1],
        saying=["`docker run --network=host img 'a b' $C`"],
    ),
    flags(
        "error",
        shell("docker run --ipc=host --sysctl kernel.shmmax=68719476736 img x\n"),
        lines=[1],
        saying=["host's IPC namespace"],
    ),
    flags(
        "error",
        shell("docker run --sysctl vm.overcommit_memory=1 img x\n"),
        lines=[1],
        saying=["applies to the whole machine"],
    ),
    flags(
        "warning",
        shell("docker run --gpus all --ipc=host --shm-size=16g img torchrun x.py\n"),
        lines=[1],
        saying=["16g has no effect", "`docker run --gpus all --ipc=host img torchrun x.py`"],
    ),
    flags(
        "note",
        shell("docker run --gpus all img torchrun --nproc-per-node 8 x.py\n"),
        lines=[1],
        saying=["64 MiB", "--shm-size=8g"],
    ),
    flags(
        "error",
        compose(
            """
            services:
              train:
                image: trainer
                network_mode: host
                sysctls:
                  - net.core.somaxconn=1024
            """
        ),
        lines=[6],
        saying=["will not start", "remove `net.core.somaxconn=1024`"],
    ),
    flags(
        "warning",
        compose(
            """
            services:
              train:
                image: trainer
                ipc: host
                shm_size: 8gb
            """
        ),
        lines=[5],
        saying=["8gb has no effect"],
    ),
    leaves(shell("docker run --sysctl net.core.somaxconn=1024 img x\n")),
    leaves(shell("docker run --network=$NET --sysctl net.core.somaxconn=1024 img x\n")),
    leaves(shell("docker run --network=host --ipc=host --ulimit memlock=-1 img torchrun x.py\n")),
    leaves(shell("docker run --shm-size=16g --gpus all img torchrun x.py\n")),
    leaves(shell("docker run --gpus all -v /dev/shm:/dev/shm img torchrun x.py\n")),
    leaves(shell("docker run --gpus all $OPTIONS img torchrun x.py\n")),
    leaves(shell("docker run --gpus all img python infer.py\n")),
    leaves(shell("docker run --sysctl fs.mqueue.msg_max=100 img x\n")),
)
