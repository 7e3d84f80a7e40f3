"""Names below the job's own libraries: CUDA, OpenMP, allocators, containers, other networks."""

CUDA = """
[NVIDIA CUDA C++ Programming Guide, 'CUDA Environment Variables']
CUDA_VISIBLE_DEVICES | | | all | which GPUs a process sees, and in which order
CUDA_DEVICE_ORDER | | | FASTEST_FIRST | how GPUs are numbered; PCI_BUS_ID is nvidia-smi's order
CUDA_LAUNCH_BLOCKING | | | 0 | each kernel is waited for: slow, but errors show where they arise
CUDA_DEVICE_MAX_CONNECTIONS | | | 8 | hardware queues; Megatron-LM wants 1 on GPUs before Blackwell
CUDA_MODULE_LOADING | | | LAZY | LAZY or EAGER loading of kernels
CUDA_CACHE_PATH | | | ~/.nv/ComputeCache | where compiled kernels are kept
CUDA_CACHE_DISABLE | | | 0 | keep no compiled kernels
[NVIDIA Multi-Process Service documentation]
CUDA_MPS_PIPE_DIRECTORY | | | /tmp/nvidia-mps | where the MPS server is found
[NVIDIA cuBLAS documentation, results reproducibility]
CUBLAS_WORKSPACE_CONFIG | | | | :4096:8 or :16:8 where results must be repeatable
[NVIDIA cuDNN and cuBLAS documentation]
NVIDIA_TF32_OVERRIDE | | | | 0 turns TF32 off in all of NVIDIA's libraries, whatever the script says
[NVIDIA Container Toolkit documentation, 'Specialized Configurations with Docker']
NVIDIA_VISIBLE_DEVICES | | | | GPUs that a container is given when it starts; later it has no effect
NVIDIA_DRIVER_CAPABILITIES | | | utility,compute | driver parts a container is given when it starts
NVIDIA_REQUIRE_* | | | | what a container image asks of the driver
"""

TORCH = """
[torch 2.13.0 c10/core/AllocatorConfig.cpp (strings of libc10.so); docs: notes/cuda]
PYTORCH_ALLOC_CONF | | | | the caching allocator of any device, as in expandable_segments:True
PYTORCH_CUDA_ALLOC_CONF | | | | the same for CUDA: the older name, looked at first
PYTORCH_NO_CUDA_MEMORY_CACHING | | | 0 | no caching of GPU memory: very slow, for memory debuggers
PYTORCH_NVML_BASED_CUDA_CHECK | | | 0 | count GPUs without starting CUDA, so that fork stays safe
[torch 2.13.0 torch/_logging, hub.py, serialization.py, utils/cpp_extension.py, __init__.py]
TORCH_LOGS | | | | what torch logs, as in +dynamo,recompiles
TORCH_LOGS_OUT | | | stderr | file for that log
TORCH_TRACE | | | | folder for structured traces of torch.compile
TORCH_HOME | | | ~/.cache/torch | where downloaded models are kept
TORCH_COMPILE_DEBUG | | | 0 | write what torch.compile does into files
TORCH_CUDA_ARCH_LIST | | | | GPUs that extensions are built for
TORCH_EXTENSIONS_DIR | | | ~/.cache/torch_extensions | where built extensions are kept
TORCH_FORCE_WEIGHTS_ONLY_LOAD | | | 0 | torch.load unpickles tensors only, whatever the call says
TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD | | | 0 | torch.load unpickles anything: for trusted files
TORCH_DEVICE_BACKEND_AUTOLOAD | | | 1 | load device plugins when torch is imported
TORCH_ALLOW_TF32_CUBLAS_OVERRIDE | | | 0 | TF32 in matrix products, whatever the script says
TORCH_DISABLE_ADDR2LINE | | | 0 | no slow symbol look-up for C++ stacks
TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING | | | 0 | keep collectives in profiles
TORCHINDUCTOR_* | | | | a setting of torch.compile's code generator
TORCHDYNAMO_* | | | | a setting of torch.compile's front end
"""

OPENMP = """
[OpenMP 5.2 specification, environment variables; torch 2.13.0 torch/distributed/run.py]
OMP_NUM_THREADS | | | all processors | threads per process; torchrun exports 1 for several ranks
OMP_PROC_BIND | | | | bind threads to processors
OMP_PLACES | | | | which processors those are
MKL_NUM_THREADS | | | OMP_NUM_THREADS | threads of MKL only
KMP_AFFINITY | | | | binding of threads under Intel's OpenMP
GOMP_CPU_AFFINITY | | | | binding of threads under GNU's OpenMP
"""

NETWORKS = """
[openucx/ucx documentation, ucx_info -f; NCCL itself does not use UCX]
UCX_TLS | | | all | transports of UCX; only MPI and UCC use UCX, NCCL does not
UCX_NET_DEVICES | | | all | network devices of UCX; NCCL does not read it
UCX_* | | | | a setting of UCX; only MPI and UCC use UCX, NCCL does not
[ofiwg/libfabric fabric(7), fi_efa(7)]
FI_PROVIDER | | | | provider of libfabric, as in efa; NCCL comes to it through aws-ofi-nccl
FI_EFA_USE_DEVICE_RDMA | | | | RDMA reads on EFA
FI_LOG_LEVEL | | | warn | how much libfabric logs
FI_* | | | | a setting of libfabric
[aws/aws-ofi-nccl include/nccl_ofi_param.h]
OFI_NCCL_* | | | | a setting of the plugin that lets NCCL use libfabric (EFA)
[linux-rdma/rdma-core ibv_fork_init(3)]
RDMAV_FORK_SAFE | | | 0 | make RDMA memory safe against fork
IBV_FORK_SAFE | | | 0 | make RDMA memory safe against fork
"""
