"""What torch 2.13.0 reads: its NCCL and Gloo groups, the flight recorder, torchrun.

The TORCH_NCCL_ names came with 2.2; the older NCCL_ spellings of five of them are still read,
with a warning, and lose against the new name (Utils.hpp, getCvarInt).
"""

PYTORCH = """
[torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp]
TORCH_NCCL_ASYNC_ERROR_HANDLING | 2.2 | | 3 | on failure: 0 nothing, 1 abort and end, 2 abort, 3 end
TORCH_NCCL_BLOCKING_WAIT | 2.2 | | 0 | only wait() times out, and blocks the CPU; no watchdog acts
TORCH_NCCL_DESYNC_DEBUG | 2.2 | | 0 | on timeout, report which ranks are behind
TORCH_NCCL_ENABLE_TIMING | 2.2 | | 0 | record the start of every collective too
TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK | 2.2 | | 0 | register allocations with NCCL
TORCH_NCCL_AVOID_RECORD_STREAMS | 2.1 | | | has no effect any more: what it asked for is the default
TORCH_NCCL_BCAST_UNIQUEID | | | 1 | share NCCL's id through the store
TORCH_NCCL_COORD_CHECK_MILSEC | | | 1000 | how often the monitor asks whether another rank failed
TORCH_NCCL_CUDA_EVENT_CACHE | | | 1 | reuse CUDA events
TORCH_NCCL_DUMP_ON_TIMEOUT | 2.2 | | 1 | write the flight recorder when a collective times out
TORCH_NCCL_ENABLE_MONITORING | 2.2 | | 1 | end the process when the watchdog itself is stuck
TORCH_NCCL_EXTRA_DUMP_ON_EXEC | | | 0 | one more recorder dump on an exception
TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC | 2.2 | | 480 | how long the watchdog may be stuck
TORCH_NCCL_HIGH_PRIORITY | | | 0 | communicate on high-priority streams
TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN | | | 1 | C++ stacks on an unclean end
TORCH_NCCL_NAN_CHECK | | | 0 | look for NaN before each collective
TORCH_NCCL_PROPAGATE_ERROR | | | 0 | tell other ranks of a failure through the store
TORCH_NCCL_RANKS_PER_ROOT | | | 128 | ranks per NCCL root at the start
TORCH_NCCL_RETHROW_CUDA_ERRORS | | | 1 | CUDA errors in the watchdog end the process
TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING | | | 1 | that warning
TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC | | | 15000 | time allowed for the dump before the end
TORCH_NCCL_DEBUG_INFO_PIPE_FILE | | | | a pipe that asks for a recorder dump
NCCL_ASYNC_ERROR_HANDLING | | use TORCH_NCCL_ASYNC_ERROR_HANDLING | | old spelling
NCCL_BLOCKING_WAIT | | use TORCH_NCCL_BLOCKING_WAIT | | old spelling
NCCL_DESYNC_DEBUG | | use TORCH_NCCL_DESYNC_DEBUG | | old spelling
NCCL_ENABLE_TIMING | | use TORCH_NCCL_ENABLE_TIMING | | old spelling
NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK || use TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK || old
[pytorch/pytorch torch/csrc/cuda/nccl.cpp, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp]
TORCH_NCCL_USE_COMM_NONBLOCKING | | | 0 | NCCL communicators that do not block (experimental)
TORCH_NCCL_NONBLOCKING_TIMEOUT | | | 1800 | seconds to wait for those
[torch/csrc/distributed/c10d/FlightRecorder.hpp]
TORCH_FR_BUFFER_SIZE | | | 2000 | entries of the flight recorder; 0 turns it off
TORCH_FR_CPP_STACK | | | 0 | record C++ stacks too
TORCH_FR_DUMP_TEMP_FILE | | | | where dumps go; the rank is added
TORCH_FR_DUMP_DYNAMIC_FILE_NAME | | | 0 | a new file name for every dump
TORCH_NCCL_TRACE_BUFFER_SIZE | 2.2 | use TORCH_FR_BUFFER_SIZE | | older name, still read
TORCH_NCCL_TRACE_CPP_STACK | | use TORCH_FR_CPP_STACK | | older name, still read
TORCH_NCCL_DEBUG_INFO_TEMP_FILE | | use TORCH_FR_DUMP_TEMP_FILE | | older name, still read
TORCH_INCLUDE_STACK_TRACE | | | 1 | stacks in recorder dumps
TORCH_INCLUDE_ONLY_ACTIVE | | | 0 | only unfinished collectives in recorder dumps
[torch/distributed/distributed_c10d.py, device_mesh.py, config.py]
TORCH_DISTRIBUTED_DEBUG | | | OFF | OFF, INFO or DETAIL: consistency checks and logging
TORCH_DISTRIBUTED_USE_TORCHCOMMS | | | | groups by torchcomms
TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK | | | 0 | compile once, on one rank
TORCH_DIST_INIT_BARRIER | | | 0 | a barrier at the end of init_process_group
TORCHELASTIC_USE_AGENT_STORE | | | | set by torchrun: ranks use the agent's store
TORCHELASTIC_RUN_ID | | | | set by torchrun: tells a rank that torchrun started it
TORCH_CPP_LOG_LEVEL | | | ERROR | level of the C++ logs
TORCH_SHOW_CPP_STACKTRACES | | | 0 | C++ stacks in Python errors
"""

GLOO = """
[torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, GlooDeviceFactory.cpp; pytorch/gloo]
GLOO_SOCKET_IFNAME | | | own address | interfaces for Gloo: exact names, no prefixes, no ^ or =
GLOO_DEVICE_TRANSPORT | | | TCP | TCP, or TCP_TLS in builds with OpenSSL (stock wheels have none)
GLOO_DEVICE_TRANSPORT_TCP_TLS_* | | | | keys and certificates; only in builds with OpenSSL
GLOO_DISABLE_CONNECTION_RETRIES | | | 0 | do not try a failed connect again
GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER | | | 0 | number connections by rank
GLOO_ENABLE_STORE_V2_API | | | 0 | faster exchange through the store
GLOO_LOG_LEVEL | | | WARN | DEBUG, INFO, WARN or ERROR: level of Gloo's own logs
TORCH_GLOO_LAZY_INIT | | | 0 | connect to peers at first use
"""

TORCHRUN = """
[torch/distributed/elastic: agent/server, multiprocessing, rendezvous; torch/distributed/launcher]
TORCHELASTIC_ENABLE_FILE_TIMER | | | 0 | end ranks whose own timers expire
TORCHELASTIC_TIMER_FILE | | | | named pipe for those timers
TORCHELASTIC_ERROR_FILE | | | | set by torchrun: where a rank writes its error
TORCHELASTIC_ETCD_BINARY_PATH | | | | etcd for the etcd rendezvous
TORCHELASTIC_HEALTH_CHECK_PORT | | | | port of the agent's health check
TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE | | | | prefix of each line of output
TORCHELASTIC_MAX_RESTARTS | | | | set by torchrun
TORCHELASTIC_RESTART_COUNT | | | | set by torchrun
TORCHELASTIC_SIGNALS_TO_HANDLE | | | | set by torchrun from --signals-to-handle
TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT | | | 0 | give up on ranks stuck in the kernel
TORCH_ELASTIC_SHUTDOWN_TIMEOUT | | | 30 | seconds between SIGTERM and SIGKILL
TORCH_ELASTIC_WORKER_IDENTICAL | | | 0 | all nodes have equal workers: a quicker exchange
[torch/distributed/run.py and argparse_util.py: PET_ and the flag's name]
PET_NNODES | | | 1:1 | --nnodes
PET_NPROC_PER_NODE | | | 1 | --nproc-per-node
PET_RDZV_BACKEND | | | static | --rdzv-backend
PET_RDZV_ENDPOINT | | | | --rdzv-endpoint
PET_RDZV_ID | | | none | --rdzv-id
PET_RDZV_CONF | | | | --rdzv-conf
PET_STANDALONE | | | 0 | --standalone
PET_MAX_RESTARTS | | | 0 | --max-restarts
PET_MONITOR_INTERVAL | | | 0.1 | --monitor-interval
PET_START_METHOD | | | spawn | --start-method
PET_EVENT_LOG_HANDLER | | | null | --event-log-handler
PET_ROLE | | | default | --role
PET_MODULE | | | 0 | --module
PET_NO_PYTHON | | | 0 | --no-python
PET_RUN_PATH | | | 0 | --run-path
PET_LOG_DIR | | | a temporary folder | --log-dir
PET_REDIRECTS | | | 0 | --redirects
PET_TEE | | | 0 | --tee
PET_LOCAL_RANKS_FILTER | | | | --local-ranks-filter
PET_DUPLICATE_STDOUT_FILTERS | | | | --duplicate-stdout-filters
PET_DUPLICATE_STDERR_FILTERS | | | | --duplicate-stderr-filters
PET_NODE_RANK | | | 0 | --node-rank
PET_MASTER_ADDR | | | 127.0.0.1 | --master-addr
PET_MASTER_PORT | | | 29500 | --master-port
PET_LOCAL_ADDR | | | | --local-addr
PET_SIGNALS_TO_HANDLE | | | SIGTERM,SIGINT,SIGHUP,SIGQUIT | --signals-to-handle
PET_SHUTDOWN_TIMEOUT | | | | --shutdown-timeout
PET_VIRTUAL_LOCAL_RANK | | | 0 | --virtual-local-rank
"""
