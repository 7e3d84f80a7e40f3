"""What Accelerate 1.15.0.dev0, DeepSpeed 0.19.6 and Horovod 0.28.1 read.

The well-known names: Accelerate and DeepSpeed compose more of them at run time (the families
that end in '*').
"""

ACCELERATE = """
[huggingface/accelerate src/accelerate: state.py, logging.py, utils/dataclasses.py, launch files]
ACCELERATE_ALLOW_CP_STANDALONE | | | false | context parallelism without FSDP
ACCELERATE_BYPASS_DEVICE_MAP | | | false | ignore the device map of a loaded model
ACCELERATE_CONFIG_DS_FIELDS | | | | DeepSpeed fields that came from the Accelerate config
ACCELERATE_CPU_AFFINITY | | | false | bind each rank to the CPUs near its GPU
ACCELERATE_DEBUG_MODE | | | false | check shapes before every collective
ACCELERATE_DEBUG_RDV_FILE | | | | rendezvous file of the notebook launcher's test
ACCELERATE_DEEPSPEED_* | | | | fields of the DeepSpeed plugin
ACCELERATE_DEEPSPEED_CONFIG_FILE | | | none | DeepSpeed's JSON file
ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES | | | | mixture-of-experts layers
ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE | | | none | where optimizer state is offloaded
ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH | | | none | path for that
ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE | | | none | where parameters are offloaded
ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH | | | none | path for that
ACCELERATE_DEEPSPEED_ZERO3_INIT | | | false | shard while the model is built
ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL | | | false | save 16-bit weights under ZeRO-3
ACCELERATE_DEEPSPEED_ZERO_STAGE | | | 2 | ZeRO stage
ACCELERATE_DOWNCAST_BF16 | | | | bfloat16 on TPU
ACCELERATE_DYNAMO_* | | | | arguments of torch.compile
ACCELERATE_ENABLE_RICH | | | false | coloured tracebacks
ACCELERATE_FP8_* | | | | fields of the FP8 recipe
ACCELERATE_GRADIENT_ACCUMULATION_STEPS | | | 1 | steps per optimizer step
ACCELERATE_GRADIENT_CLIPPING | | | auto | gradient clipping under DeepSpeed
ACCELERATE_INIT_INCLUDE_BUFFERS | | | false | empty-weight start includes buffers
ACCELERATE_IN_TPU_POD | | | | set for workers of a TPU pod
ACCELERATE_LOG_LEVEL | | | | level of Accelerate's logger
ACCELERATE_MIXED_PRECISION | | | no | no, fp16, bf16 or fp8
ACCELERATE_NUM_PROCESSES | | | | set by its launcher
ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE | | | | set on SageMaker
ACCELERATE_TORCH_DEVICE | | | | device to use
ACCELERATE_USE_CPU | | | false | train on the CPU
ACCELERATE_USE_DEEPSPEED | | | false | use DeepSpeed
ACCELERATE_USE_FSDP | | | false | use FSDP
ACCELERATE_USE_MEGATRON_LM | | | false | use Megatron-LM
ACCELERATE_USE_PARALLELISM_CONFIG | | | false | read PARALLELISM_CONFIG_ variables
ACCELERATE_USE_SAGEMAKER | | | false | set on SageMaker
"""

DEEPSPEED = """
[deepspeedai/DeepSpeed deepspeed/constants.py, elasticity/, launcher/runner.py]
DEEPSPEED_TIMEOUT | | | 10 | minutes, not seconds, until a collective times out (30 before 0.19)
DEEPSPEED_ELASTICITY_CONFIG | | | | elastic batch configuration, as JSON
DEEPSPEED_AUTOTP_MODE | | | | how automatic tensor parallelism works
DS_ENV_FILE | | | .deepspeed_env | file whose variables the launcher hands to every node
DS_BUILD_* | | | | which extensions a build compiles
DS_SKIP_CUDA_CHECK | | | 0 | build although CUDA versions differ
DS_PIN_MEMORY_BACKEND | | | torch | who pins host memory
DS_SDMA_ALLGATHER | | | 0 | copy-engine all-gather
"""

HOROVOD = """
[horovod/horovod 0.28.1 horovod/common: common.h, operations.cc, utils, gloo; horovod/runner]
HOROVOD_ADASUM_MPI_CHUNK_SIZE | | | 1073741824 | bytes per chunk of Adasum over MPI
HOROVOD_AUTOTUNE | | | 0 | tune fusion and cycle time while training
HOROVOD_AUTOTUNE_* | | | | how it tunes, and where it logs
HOROVOD_BATCH_D2D_MEMCOPIES | | | 1 | copy fused tensors in one kernel
HOROVOD_CACHE_CAPACITY | | | 1024 | entries of the response cache
HOROVOD_CCL_CACHE | | | | cache of oneCCL
HOROVOD_CONTROLLER | | | built in | mpi or gloo
HOROVOD_CPU_OPERATIONS | | | built in | mpi, gloo or ccl
HOROVOD_CROSS_RANK | | | | set by its launcher
HOROVOD_CROSS_SIZE | | | | set by its launcher
HOROVOD_CYCLE_TIME | | | 1 | milliseconds between rounds
HOROVOD_DISABLE_GROUP_FUSION | | | 0 | do not fuse groups
HOROVOD_DISABLE_NVTX_RANGES | | | 0 | no ranges for profilers
HOROVOD_DYNAMIC_PROCESS_SETS | | | 0 | process sets may change
HOROVOD_ELASTIC | | | 0 | set for elastic jobs
HOROVOD_ELASTIC_TIMEOUT | | | 600 | seconds to wait for enough hosts
HOROVOD_ENABLE_ASYNC_COMPLETION | | | 0 | report completion from the GPU stream
HOROVOD_ENABLE_XLA_OPS | | | 0 | operations for XLA
HOROVOD_FUSION_THRESHOLD | | | 134217728 | bytes fused into one operation
HOROVOD_GLOO_* | | | | rendezvous address, port and interface, set by its launcher
HOROVOD_GLOO_IFACE | | | | interface for Gloo
HOROVOD_GLOO_TIMEOUT_SECONDS | | | 30 | seconds until a Gloo operation times out
HOROVOD_HIERARCHICAL_ALLGATHER | | | 0 | first within, then between nodes
HOROVOD_HIERARCHICAL_ALLREDUCE | | | 0 | first within, then between nodes
HOROVOD_HOSTNAME | | | | set by its launcher
HOROVOD_LOCAL_RANK | | | | set by its launcher
HOROVOD_LOCAL_SIZE | | | | set by its launcher
HOROVOD_LOG_HIDE_TIME | | | 0 | no times in the log
HOROVOD_LOG_LEVEL | | | warning | trace to fatal
HOROVOD_MPI_THREADS_DISABLE | | | 0 | MPI without threads
HOROVOD_NUM_NCCL_STREAMS | | | 1 | NCCL streams
HOROVOD_RANK | | | | set by its launcher
HOROVOD_SIZE | | | | set by its launcher
HOROVOD_SPARK_* | | | | jobs on Spark
HOROVOD_STALL_CHECK_DISABLE | | | 0 | no warning about ranks that lag
HOROVOD_STALL_CHECK_TIME_SECONDS | | | 60 | when to warn about them
HOROVOD_STALL_SHUTDOWN_TIME_SECONDS | | | 0 | when to end the job for them; 0 is never
HOROVOD_START_TIMEOUT | | | 30 | seconds for all processes to start
HOROVOD_THREAD_AFFINITY | | | | CPU of the background thread
HOROVOD_TIMELINE | | | | file for a trace
HOROVOD_TIMELINE_MARK_CYCLES | | | 0 | show rounds in it
HOROVOD_TORUS_ALLREDUCE | | | 0 | torus algorithm
[horovod/horovod setup.py, docs/install.rst: read while it is built]
HOROVOD_WITH_* | | | | frameworks and libraries to build for
HOROVOD_WITHOUT_* | | | | frameworks and libraries to leave out
HOROVOD_GPU_* | | | | libraries for GPU operations
HOROVOD_GPU | | | | CUDA or ROCM
HOROVOD_BUILD_* | | | | build options
HOROVOD_NCCL_* | | | | where NCCL is
HOROVOD_CUDA_* | | | | where CUDA is
HOROVOD_CMAKE | | | cmake | which cmake
HOROVOD_SKIP_COMPILE | | | | build nothing
HOROVOD_DEBUG | | | | build for debugging
HOROVOD_LOCAL_VERSION | | | | version suffix of a build
"""
