"""Names that guides and forum answers pass on, but that no program reads.

Each row says why, and what to do instead. All tags of NVIDIA/nccl, the releases of Accelerate,
and torch 2.13.0 were searched for these names.
"""

TABLE = """
[NVIDIA/nccl: no tag up to 2.30.7 holds the name]
NCCL_REUSE_SOCKET_ADDR | | | | NCCL listens on ports the kernel picks, which are fresh anyway
NCCL_TIMEOUT | | | | NCCL has no collective timeout: give init_process_group(timeout=…)
NCCL_TIMEOUT_MS | | | | NCCL has no collective timeout: give init_process_group(timeout=…)
NCCL_COMM_TIMEOUT | | | | NCCL has no collective timeout: give init_process_group(timeout=…)
NCCL_SOCKET_TIMEOUT | | | | retries are NCCL_SOCKET_RETRY_CNT and NCCL_SOCKET_RETRY_SLEEP_MSEC
NCCL_RETRY_COUNT | | | | retries are NCCL_SOCKET_RETRY_CNT (sockets) and NCCL_IB_RETRY_CNT (RDMA)
NCCL_PORT | | | | NCCL's ports are picked by the kernel: set net.ipv4.ip_local_port_range
NCCL_PORT_RANGE | | | | NCCL's ports are picked by the kernel: set net.ipv4.ip_local_port_range
NCCL_SOCKET_PORT | | | | NCCL's ports are picked by the kernel: set net.ipv4.ip_local_port_range
NCCL_DISABLE | | | | ask for another backend: init_process_group('gloo')
NCCL_DISABLE_P2P | | | | the name is NCCL_P2P_DISABLE
NCCL_DISABLE_SHM | | | | the name is NCCL_SHM_DISABLE
NCCL_DISABLE_IB | | | | the name is NCCL_IB_DISABLE
NCCL_IB_ENABLE | | | | RDMA is used where it is found; NCCL_IB_DISABLE=1 turns it off
NCCL_P2P_NET_DISABLE | | | | only RCCL has such a switch: RCCL_P2P_NET_DISABLE
NCCL_P2P_ENABLE | | | | direct access is used where it works; NCCL_P2P_DISABLE=1 turns it off
NCCL_INTERFACE | | | | the name is NCCL_SOCKET_IFNAME
NCCL_IFNAME | | | | the name is NCCL_SOCKET_IFNAME
NCCL_LOG_LEVEL | | | | the name is NCCL_DEBUG
NCCL_DEBUG_LEVEL | | | | the name is NCCL_DEBUG
[torch 2.13.0: neither headers nor Python files hold the name]
TORCH_NCCL_TIMEOUT | | | | give init_process_group(timeout=…)
TORCH_NCCL_TIMEOUT_SEC | | | | give init_process_group(timeout=…)
TORCH_DISTRIBUTED_TIMEOUT | | | | give init_process_group(timeout=…)
TORCH_DIST_TIMEOUT | | | | give init_process_group(timeout=…)
TORCH_DISTRIBUTED_BACKEND | | | | give init_process_group(backend=…)
GLOO_TIMEOUT | | | | give init_process_group(timeout=…)
GLOO_IFNAME | | | | the name is GLOO_SOCKET_IFNAME
[torch 2.13.0 torch/distributed/run.py: these two flags have no PET_ variable]
PET_LOGS_SPECS | | | | give torchrun the flag itself: --logs-specs
PET_NUMA_BINDING | | | | give torchrun the flag itself: --numa-binding
[huggingface/accelerate: no release tag up to 1.9, nor 1.15.0.dev0, holds the name]
ACCELERATE_DISABLE_NCCL | | | | use InitProcessGroupKwargs(backend='gloo'), or a CPU run
ACCELERATE_TIMEOUT | | | | use InitProcessGroupKwargs(timeout=…)
"""
