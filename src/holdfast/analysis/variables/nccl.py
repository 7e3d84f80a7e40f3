"""What NCCL documents: docs/userguide/source/env.rst of NVIDIA/nccl, tag v2.30.7-1."""

TABLE = """
[NVIDIA/nccl 2.30.7 docs/userguide/source/env.rst, Interfaces and sockets]
NCCL_SOCKET_IFNAME | | | | IP interfaces to use: name prefixes, = for exact, ^ to exclude
NCCL_SOCKET_FAMILY | | | any | force AF_INET or AF_INET6 addresses
NCCL_SOCKET_MAGIC | 2.30.7 | | built in | number in the handshake that keeps unrelated jobs apart
NCCL_SOCKET_RETRY_CNT | 2.24 | | 34 | how often a refused or timed-out connect is tried again
NCCL_SOCKET_RETRY_SLEEP_MSEC | 2.24 | | 100 | first pause between tries; it grows
NCCL_SOCKET_POLL_TIMEOUT_MSEC | 2.28 | | 0 | wait in poll() instead of spinning at the start
NCCL_SOCKET_NTHREADS | 2.4.8 | | 1, 2 or 4 | helper threads per connection of the socket transport
NCCL_NSOCKS_PERTHREAD | 2.4.8 | | 1 or 8 | sockets per helper thread of the socket transport
NCCL_CROSS_NIC | 2.5.6 | | 2 | may one ring use different network cards on different nodes
NCCL_OOB_NET_ENABLE | 2.23 | | 0 | use the network plugin also for the start-up exchange
NCCL_OOB_NET_IFNAME | 2.23 | | | device for that exchange, same filter syntax as NCCL_IB_HCA
NCCL_UID_STAGGER_THRESHOLD | 2.23 | | 256 | from this many ranks on, spread connects over time
NCCL_UID_STAGGER_RATE | 2.23 | | 7000 | how many connects a second the root is given then
[NVIDIA/nccl 2.30.7 docs/userguide/source/env.rst, RDMA]
NCCL_IB_HCA | | | | RDMA cards and ports to use: prefixes, = for exact, ^ to exclude
NCCL_IB_TIMEOUT | | | 20 | RDMA acknowledge timeout: 4.096 µs times two to this power
NCCL_IB_RETRY_CNT | 2.1.15 | | 7 | RDMA retries before an error
NCCL_IB_GID_INDEX | 2.1.4 | | -1 (automatic) | GID table entry to use with RoCE
NCCL_IB_ADDR_FAMILY | 2.21 | | AF_INET | address family of the GID that is picked automatically
NCCL_IB_ADDR_RANGE | 2.21 | | | address range (CIDR) from which a GID may be picked
NCCL_IB_ROCE_VERSION_NUM | 2.21 | | 2 | RoCE version of the GID that is picked automatically
NCCL_IB_SL | 2.1.4 | | 0 | RDMA service level
NCCL_IB_TC | 2.1.15 | | 0 | RDMA traffic class of the data
NCCL_IB_FIFO_TC | 2.22.3 | | NCCL_IB_TC | RDMA traffic class of the small control messages
NCCL_IB_RETURN_ASYNC_EVENTS | 2.23 | | 1 | stop on fatal asynchronous events of the card
NCCL_IB_MERGE_NICS | 2.20 | | 1 | treat two ports of one card as one device
NCCL_NET_MERGE_POLICY | 2.30.5 | | ALL | which cards may be merged into one device: ALL or RAIL
NCCL_NET | 2.10 | | automatic | force one network by name: IB, Socket, or a plugin's name
[NVIDIA/nccl 2.30.7 docs/userguide/source/env.rst, Plugins]
NCCL_NET_PLUGIN | 2.11 | | libnccl-net.so | which network plugin to load, or none
NCCL_TUNER_PLUGIN | 2.19.1 | | libnccl-tuner.so | which tuner plugin to load, or none
NCCL_PROFILER_PLUGIN | 2.23.4 | | libnccl-profiler.so | which profiler plugin to load, or none
NCCL_ENV_PLUGIN | 2.28 | | libnccl-env.so | which environment plugin to load, or none
[NVIDIA/nccl 2.30.7 docs/userguide/source/env.rst, Configuration and logging]
NCCL_IGNORE_CPU_AFFINITY | 2.4.6 | | 0 | ignore the job's CPU affinity, keep only the GPU's
NCCL_CONF_FILE | 2.23 | | ~/.nccl.conf | file with more settings; ~ is not expanded
NCCL_DEBUG | | | none | how much to log: VERSION, WARN, INFO or TRACE
NCCL_DEBUG_FILE | 2.2.12 | | stdout | where the log goes; %h is the host, %p the pid
NCCL_DEBUG_SUBSYS | 2.3.4 | | INIT,BOOTSTRAP,ENV | parts that log at INFO; replaces the default
NCCL_DEBUG_TIMESTAMP_FORMAT | 2.26 | | [%F %T] | strftime format of the times in the log
NCCL_DEBUG_TIMESTAMP_LEVELS | 2.26 | | WARN | which log levels carry a time
NCCL_COLLNET_ENABLE | 2.6 | | 0 | use the CollNet plugin (in-network reduction)
NCCL_COLLNET_NODE_THRESHOLD | 2.9.9 | | 2 | fewest nodes for which CollNet is used
NCCL_CTA_POLICY | 2.29 | | DEFAULT | favour speed, efficiency or zero GPU blocks
NCCL_NETDEVS_POLICY | 2.28 | | AUTO | how network devices are shared out between GPUs
NCCL_MULTI_RANK_GPU_ENABLE | 2.30 | | 0 | allow several ranks on one GPU (experimental)
NCCL_TOPO_FILE | 2.6 | | virtualTopology.xml | XML file that describes the topology
NCCL_TOPO_DUMP_FILE | 2.6 | | | write the detected topology to this file
NCCL_SET_THREAD_NAME | 2.12 | | 0 | give NCCL's CPU threads telling names
[NVIDIA/nccl 2.30.7 docs/userguide/source/env.rst, Debugging]
NCCL_P2P_DISABLE | | | 0 | no direct GPU-to-GPU access (NVLink, PCI)
NCCL_P2P_LEVEL | 2.3.4 | | automatic | greatest distance for direct access: LOC NVL PIX PXB PHB SYS
NCCL_P2P_DIRECT_DISABLE | 2.12.12 | | 0 | no direct access to user buffers inside one process
NCCL_SHM_DISABLE | | | 0 | no shared memory between ranks of a node: the network is used instead
NCCL_BUFFSIZE | | | 4194304 | bytes of buffer between a pair of GPUs
NCCL_NTHREADS | | | automatic | CUDA threads per block: 64, 128, 256 or 512
NCCL_MAX_NCHANNELS | 2.5.6 | use NCCL_MAX_CTAS | automatic | most channels (CUDA blocks) to use
NCCL_MIN_NCHANNELS | 2.5.6 | use NCCL_MIN_CTAS | automatic | fewest channels (CUDA blocks) to use
NCCL_CHECKS_DISABLE | 2.0.5 | until 2.2 use NCCL_CHECK_MODE | 0 | skip argument checks
NCCL_CHECK_POINTERS | 2.2.12 | use NCCL_CHECK_MODE | 0 | check CUDA pointers on each call
NCCL_CHECK_MODE | 2.29.7 | | DEFAULT | how strictly arguments are checked
NCCL_LAUNCH_MODE | 2.1.0 | | PARALLEL | how kernels are launched by a process with several GPUs
NCCL_IB_DISABLE | | | 0 | do not use RDMA (IB or RoCE): falls back to sockets
NCCL_IB_AR_THRESHOLD | 2.6 | | 8192 | bytes above which data is adaptively routed
NCCL_IB_OOO_RQ | 2.30 | | 0 | let receives be consumed out of order
NCCL_IB_QPS_PER_CONNECTION | 2.10 | | 1 | RDMA queue pairs per connection
NCCL_IB_SPLIT_DATA_ON_QPS | 2.18 | | 0 | split each message over the queue pairs
NCCL_IB_CUDA_SUPPORT | | until 2.3 use NCCL_NET_GDR_LEVEL | automatic | GPU Direct RDMA on or off
NCCL_IB_PCI_RELAXED_ORDERING | 2.12 | | 2 | use PCI relaxed ordering
NCCL_IB_ADAPTIVE_ROUTING | 2.16 | | 1 on IB, 0 on RoCE | use adaptive routing
NCCL_IB_ECE_ENABLE | 2.23 | | 1 | use enhanced connection establishment
NCCL_MEM_SYNC_DOMAIN | 2.16 | | 1 | CUDA memory sync domain of NCCL's kernels
NCCL_CUMEM_ENABLE | 2.18 | | automatic | allocate device memory with cuMem
NCCL_CUMEM_HOST_ENABLE | 2.23 | | automatic | allocate host memory with cuMem instead of /dev/shm
NCCL_NET_GDR_LEVEL | 2.4 | | automatic | GPU Direct RDMA up to this distance
NCCL_NET_GDR_C2C | 2.26 | | 1 | GPU Direct RDMA through a CPU attached by C2C
NCCL_NET_GDR_READ | | | automatic | send straight from GPU memory
NCCL_NET_SHARED_BUFFERS | 2.8 | | 1 | one buffer pool for all remote peers
NCCL_NET_SHARED_COMMS | 2.12 | | 1 | share connections under PXN
NCCL_IGNORE_NET_MISMATCH | 2.30 | | 1 | go on when ranks see unequal network devices
NCCL_IGNORE_COLLNET_MISMATCH | 2.30 | | 0 | go on when ranks see unequal CollNet devices
NCCL_SINGLE_RING_THRESHOLD | 2.1 | until 2.2 | 262144 | size below which one ring was used
NCCL_LL_THRESHOLD | 2.1 | until 2.4 use NCCL_PROTO | | low-latency protocol below this size
NCCL_TREE_THRESHOLD | 2.4 | until 2.4 use NCCL_ALGO | automatic | size below which trees were used
NCCL_ALGO | 2.5 | | automatic | which algorithms may be used: Ring, Tree, NVLS…
NCCL_PROTO | 2.5 | | automatic | which protocols may be used: LL, LL128, Simple
NCCL_NVB_DISABLE | 2.11 | | 0 | no NVLink path through another GPU of the node
NCCL_PXN_DISABLE | 2.12 | | 0 | no network card of another GPU reached over NVLink
NCCL_P2P_PXN_LEVEL | 2.12 | | 2 | when send and receive use such a card
NCCL_PXN_C2C | 2.27 | | 1 | allow that also over C2C and PCIe
NCCL_RUNTIME_CONNECT | 2.22 | | 1 | connect to peers at first use, not at start
NCCL_GRAPH_REGISTER | 2.11 | | 1 | register user buffers in CUDA graphs
NCCL_LOCAL_REGISTER | 2.19 | | 1 | register user buffers on request
NCCL_LEGACY_CUDA_REGISTER | 2.24 | | 0 | register buffers from cudaMalloc too (may hang)
NCCL_WIN_ENABLE | 2.27 | | 1 | window memory registration
NCCL_SET_STACK_SIZE | 2.9 | | 0 | set the kernel stack size once at the start
NCCL_GRAPH_MIXING_SUPPORT | 2.13 | | 1 | allow NCCL calls from parallel CUDA graphs
NCCL_GRAPH_STREAM_ORDERING | 2.30 | | 1 | keep communication kernels in order during graph capture
NCCL_DMABUF_ENABLE | 2.13 | | 1 | register GPU memory through dma-buf
NCCL_P2P_NET_CHUNKSIZE | 2.14 | | 131072 | bytes per network message of send and receive
NCCL_P2P_LL_THRESHOLD | 2.14 | | 16384 | largest send that uses the low-latency protocol
NCCL_ALLOC_P2P_NET_LL_BUFFERS | 2.14 | | 0 | low-latency buffers for every network connection
NCCL_COMM_BLOCKING | 2.14 | | undefined | whether NCCL calls may block
NCCL_CGA_CLUSTER_SIZE | 2.16 | | automatic | thread-block cluster size on sm90 and later
NCCL_MAX_CTAS | 2.17 | | automatic | most CUDA blocks to use
NCCL_MIN_CTAS | 2.17 | | automatic | fewest CUDA blocks to use
NCCL_NVLS_ENABLE | 2.17 | | 2 | use NVLink SHARP
NCCL_MNNVL_ENABLE | 2.21 | | 2 | use NVLink between nodes
NCCL_MNNVL_UUID | 2.25 | | -1 | identity of the NVLink domain
NCCL_MNNVL_CLIQUE_ID | 2.25 | | -1 | clique within that domain
NCCL_RAS_ENABLE | 2.24 | | 1 | the RAS service that ncclras asks about a running job
NCCL_RAS_ADDR | 2.24 | | localhost:28028 | where that service listens
NCCL_RAS_TIMEOUT_FACTOR | 2.24 | | 1 | multiplies that service's timeouts
NCCL_LAUNCH_ORDER_IMPLICIT | 2.26 | | 0 | order communicators by the host program
NCCL_LAUNCH_RACE_FATAL | 2.26 | | 1 | fail when host threads race to launch
NCCL_IPC_USE_ABSTRACT_SOCKET | 2.29 | | 1 | abstract Unix sockets between ranks of a node
NCCL_SYM_GIN_KERNELS_ENABLE | 2.29 | | 1 | symmetric kernels that use GPU-initiated networking
"""
