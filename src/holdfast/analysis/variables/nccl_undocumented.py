"""What NCCL reads but does not document: NCCL_PARAM and ncclGetEnv in all of its tags.

The effects are read from the code around each parameter; NVIDIA promises none of them.
"""

TABLE = """
[NVIDIA/nccl src, tags v2.3.5-5 to v2.30.7-1, undocumented]
NCCL_ALLGATHERV_ENABLE | 2.29.2 | | 1 | all-gather of unequal sizes as one operation
NCCL_CHUNK_SIZE | 2.12.7 | | 0 (automatic) | bytes per chunk
NCCL_COMM_ID | | | | host:port of the root; bootstrap then ignores NCCL_SOCKET_IFNAME
NCCL_COMM_SHRINK_SHARE_RESOURCES | 2.27.3 | | undefined | share resources after ncclCommShrink
NCCL_COMM_SPLIT_SHARE_RESOURCES | 2.18.1 | | undefined | share resources after ncclCommSplit
NCCL_CONNECT_ROUND_MAX_PEERS | 2.19.4 | | 128 | peers connected per round at the start
NCCL_DEV_API_JIT | 2.30.7 | | 0 | compile the device interface at run time
NCCL_DISABLE_MEM_MANAGER | 2.29.7 | | 0 | switch the memory manager off
NCCL_ELASTIC_BUFFER_REGISTER | 2.30.3 | | 1 | register buffers that can grow
NCCL_ENABLE_VERSION_CHECK | 2.29.2 | | 1 | compare versions of header and library
NCCL_GDAKI_USE_RELIABLE_DB | 2.29.7 | | 0 | doorbell kind of GPU-initiated networking
NCCL_GDRCOPY_ENABLE | 2.9.6 | | 0 | use the GDRCopy library
NCCL_GDRCOPY_FIFO_ENABLE | 2.9.6 | | 1 | GDRCopy for the work queue
NCCL_GDRCOPY_FLUSH_ENABLE | 2.9.6 | | 0 | GDRCopy to flush
NCCL_GDRCOPY_SYNC_ENABLE | 2.12.7 | | 1 | GDRCopy for synchronisation
NCCL_GDR_FLUSH_DISABLE | | | 0 | no flush after GPU Direct RDMA
NCCL_GIN_ENABLE | 2.28.7 | | 1 | GPU-initiated networking
NCCL_GIN_ERROR_QUERY_SEC | 2.28.7 | | 10 | seconds between its error checks
NCCL_GIN_GDAKI_MAX_DEST_RD_ATOMIC | 2.30.3 | | automatic | its limit of incoming reads and atomics
NCCL_GIN_GDAKI_MAX_QP_RD_ATOMIC | 2.30.3 | | automatic | its limit of outgoing reads and atomics
NCCL_GIN_GDAKI_NIC_HANDLER | 2.28.7 | | 0 | who rings the card's doorbell
NCCL_GIN_GDAKI_QP_DEPTH | 2.28.7 | | 128 | its queue depth
NCCL_GIN_IB_TC | 2.30.7 | | -1 | its traffic class
NCCL_GIN_NCONNECTIONS | 2.29.7 | | automatic | its number of connections
NCCL_GIN_PLUGIN | 2.29.7 | | | which plugin serves it
NCCL_GIN_PLUGIN_REF_COUNT | 2.29.7 | | 0 | share that plugin between communicators
NCCL_GIN_PROXY_QUEUE_SIZE | 2.28.7 | | automatic | queue size of its CPU proxy
NCCL_GIN_TYPE | 2.28.7 | | automatic | its implementation
NCCL_GRAPH_DUMP_FILE | 2.6.4 | | | write the chosen rings and trees to this XML file
NCCL_GRAPH_DUMP_FILE_RANK | 2.6.4 | | 0 | rank that writes it
NCCL_GRAPH_FILE | 2.6.4 | | | take rings and trees from this XML file
NCCL_GRAPH_HELPER_DISABLE | 2.11.4 | | 0 | no helper thread for CUDA graphs
NCCL_GROUP_CUDA_STREAM | | | automatic | declared, without effect in recent versions
NCCL_HOSTID | 2.5.6 | | hostname and boot id | name by which ranks are known to share a host
NCCL_IBVERBS_LIB | 2.30.3 | | libibverbs.so.1 | which verbs library to load
NCCL_IB_DATA_DIRECT | 2.27.3 | | 1 | Data Direct path of recent cards
NCCL_IB_DEVICE_PCI_ORDER | 2.29.7 | | 1 | number cards in PCI order
NCCL_IB_MERGE_VFS | 2.18.1 | | 1 | treat virtual functions of one card as one
NCCL_IB_MQP_RETRY_ALL | 2.24.3 | | 0 | retry every failing queue-pair change
NCCL_IB_MQP_RETRY_CNT | 2.24.3 | | 34 | how often
NCCL_IB_MQP_RETRY_SLEEP_MSEC | 2.24.3 | | 100 | pause between those tries
NCCL_IB_PKEY | 2.8.3 | | 0 | partition key index
NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS | 2.29.7 | | automatic | post receives ahead of time
NCCL_IB_QUERY_PORT_SPEED | 2.30.7 | | 1 | ask the port for its speed
NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME | 2.29.7 | | automatic | how receives are matched
NCCL_IB_RESILIENCY_PORT_FAILOVER | 2.29.7 | | 0 | move traffic off a failed port
NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS | 2.29.7 | | 1 | how often
NCCL_IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY | 2.29.7 | | 10 | milliseconds between probes
NCCL_IB_RESILIENCY_PORT_RECOVERY | 2.30.3 | | 0 | go back to a port that recovered
NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT | 2.30.3 | | 5000 | milliseconds
NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL | 2.30.3 | | 500 | milliseconds
NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE | 2.30.3 | | 5 | messages per batch
NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE | 2.30.3 | | 5 | batches in a row
NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT | 2.30.3 | | 4000 | milliseconds
NCCL_IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX | 2.30.3 | | 5 | how often
NCCL_IB_RESILIENCY_PORT_RECOVERY_START_DELAY | 2.30.3 | | 200 | milliseconds
NCCL_IB_ROUTABLE_FLID_GID_INDEX | 2.22.3 | | 1 | GID entry for routable local ids
NCCL_IB_SUBNET_AWARE_ROUTING | 2.30.7 | | 0 | pair cards of the same subnet
NCCL_IB_SUBNET_PREFIX_LEN | 2.30.7 | | 24 | length of that subnet's prefix
NCCL_IB_USE_INLINE | 2.8.3 | | 0 | send small data inside the work request
NCCL_IB_WARN_RAIL_LOCAL | 2.24.3 | | 0 | warn when a rail is crossed
NCCL_IGNORE_DISABLED_P2P | 2.12.7 | | 0 | go on when direct access should work but does not
NCCL_L1_SHARED_MEMORY_CARVEOUT | 2.12.10 | | 0 | share of L1 given to shared memory
NCCL_LL128_BUFFSIZE | 2.7.3 | | automatic | buffer of the LL128 protocol
NCCL_LL128_C2C | 2.27.3 | | 1 | LL128 over C2C
NCCL_LL128_NTHREADS | 2.5.6 | | automatic | threads of the LL128 protocol
NCCL_LL_BUFFSIZE | 2.7.3 | | automatic | buffer of the LL protocol
NCCL_LSA_TEAM_SIZE | 2.29.7 | | 0 (automatic) | ranks that reach each other by load and store
NCCL_MAX_NRINGS | | use NCCL_MAX_CTAS | automatic | old alias of NCCL_MAX_NCHANNELS
NCCL_MAX_P2P_NCHANNELS | 2.7.3 | | 64 | most channels for send and receive
NCCL_MIN_NRINGS | | use NCCL_MIN_CTAS | automatic | old alias of NCCL_MIN_NCHANNELS
NCCL_MIN_P2P_NCHANNELS | 2.7.3 | | 1 | fewest channels for send and receive
NCCL_MLOPART_RDMA_ENABLE | 2.30.7 | | 0 | RDMA on GPU partitions
NCCL_MNNVL_CROSS_CLIQUE | 2.30.3 | | 0 | NVLink between cliques
NCCL_MNNVL_RAIL_PER_HOST | 2.28.7 | | 0 | count rails per host in an NVLink domain
NCCL_MNNVL_SCATTER_NETS_ENABLE | 2.27.5 | | 1 | spread network use over an NVLink domain
NCCL_MULTI_SEGMENT_REGISTER | 2.29.2 | | 1 | register buffers of several segments
NCCL_NCHANNELS_PER_NET_PEER | 2.12.7 | | automatic | channels per network peer
NCCL_NET_DISABLE_INTRA | 2.12.7 | | 0 | never use the network inside a node
NCCL_NET_FORCE_FLUSH | 2.15.1 | | 0 | flush after every receive
NCCL_NET_FORCE_MERGE | 2.24.3 | | | cards to merge into one device
NCCL_NET_GDR_MLOPART | 2.30.7 | | 0 | GPU Direct RDMA on GPU partitions
NCCL_NET_MERGE_LEVEL | 2.24.3 | | automatic | greatest distance between cards that are merged
NCCL_NET_OPTIONAL_RECV_COMPLETION | 2.24.3 | | 1 | let the network skip some completions
NCCL_NET_OVERHEAD | 2.18.1 | | automatic | network latency assumed by the tuner
NCCL_NET_PLUGIN_REF_COUNT | 2.26.2 | | 0 | share the network plugin between communicators
NCCL_NO_CACHE | 2.29.7 | | | settings to read anew at every use
NCCL_NUM_RMA_CTX | 2.29.2 | | automatic | contexts for one-sided transfers
NCCL_NVB_PRECONNECT | 2.9.9 | | 1 | connect paths through another GPU at the start
NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE | 2.27.3 | | undefined | schedule for NVLink use
NCCL_NVLSTREE_MAX_CHUNKSIZE | 2.20.3 | | automatic | largest chunk of NVLS trees
NCCL_NVLS_CHUNKSIZE | 2.21.5 | | 131072 | chunk of NVLink SHARP
NCCL_NVLS_NCHANNELS | 2.17.1 | | automatic | channels of NVLink SHARP
NCCL_NVTX_DISABLE | 2.28.3 | | 0 | no NVTX ranges for profilers
NCCL_P2P_EPOCH_ENABLE | 2.29.2 | | 1 | order point-to-point work by epochs
NCCL_P2P_MAX_PEERS | 2.30.3 | | undefined | most peers for send and receive
NCCL_P2P_NVL_CHUNKSIZE | 2.16.2 | | 524288 | bytes per chunk over NVLink
NCCL_P2P_PCI_CHUNKSIZE | 2.16.2 | | 131072 | bytes per chunk over PCI
NCCL_P2P_PER_CHANNEL_NET_BW | 2.29.2 | | 14 | GB/s assumed per channel
NCCL_P2P_READ_ENABLE | 2.7.3 | | automatic | read from the peer instead of writing to it
NCCL_P2P_SCHEDULE_GROUP_SIZE | 2.28.7 | | built in | sends and receives launched together
NCCL_P2P_USE_CUDA_MEMCPY | 2.13.4 | | 0 | copy engine instead of kernels
NCCL_PARAM_DUMP_ALL | 2.30.3 | | 0 | list every parameter at the start
NCCL_PAT_ENABLE | 2.23.4 | | 2 | the PAT algorithm
NCCL_PROGRESS_APPENDOP_FREQ | 2.16.5 | | 8 | how often the proxy takes new work
NCCL_PROXY_APPEND_BATCH_SIZE | 2.16.2 | | 16 | how much new work it takes at once
NCCL_PROXY_CPUSET | 2.28.3 | | inherited | CPUs for the proxy threads
NCCL_PROXY_DUMP_SIGNAL | 2.14.3 | | -1 | signal at which the proxy prints its state
NCCL_REPORT_CONNECT_PROGRESS | 2.19.4 | | 0 | show how connecting goes on
NCCL_RMA_DISABLE | 2.30.7 | | 0 | no one-sided transfers
NCCL_RMA_PLUGIN | 2.30.7 | | | plugin for one-sided transfers
NCCL_RMA_PLUGIN_REF_COUNT | 2.30.7 | | 0 | share that plugin between communicators
NCCL_RMA_PROXY_DUMP_SIGNAL | 2.29.2 | | -1 | signal at which its proxy prints its state
NCCL_RMA_PROXY_QUEUE_SIZE | 2.29.2 | | automatic | queue size of its proxy
NCCL_SET_CPU_STACK_SIZE | 2.28.3 | | 1 | give NCCL's threads a full stack
NCCL_SHADOW_MEMPOOL_MAX_SIZE | 2.30.7 | | 1073741824 | bytes of the shadow memory pool
NCCL_SHM_LOCALITY | 2.13.4 | | receiver | whose NUMA node holds shared memory
NCCL_SINGLE_PROC_MEM_REG_ENABLE | 2.28.3 | | 0 | registration with several GPUs per process
NCCL_SOCKET_INLINE | 2.27.3 | | 128 | bytes sent together with the header
NCCL_SOCKET_MIN_TASKSIZE | 2.27.3 | | 65536 | bytes below which a transfer is not split
NCCL_SOCKET_RCVBUF | 2.27.3 | | kernel default | receive buffer of sockets
NCCL_SOCKET_SNDBUF | 2.27.3 | | kernel default | send buffer of sockets
NCCL_SYM_CE_THRESHOLD | 2.29.2 | | 8388608 | size from which the copy engine is used
NCCL_SYM_CTAS | 2.27.3 | | 0 (automatic) | CUDA blocks of symmetric kernels
NCCL_SYM_KERNEL | 2.27.3 | | automatic | which symmetric kernel to use
NCCL_SYM_NOWIN_ENABLE | 2.29.2 | | 0 | symmetric kernels without windows
NCCL_SYM_REUSE_SYSMEM_HANDLES | 2.30.4 | | 0 | reuse host memory handles
NCCL_SYM_RS_GIN_CHUNK_SIZE | 2.30.7 | | automatic | chunk of reduce-scatter over the network
NCCL_SYM_TMA_ENABLE | 2.30.3 | | 0 | tensor memory accelerator in symmetric kernels
NCCL_THREAD_THRESHOLDS | 2.5.6 | | built in | sizes at which more threads are used
NCCL_TOPO_DUMP_FILE_RANK | 2.6.4 | | 0 | rank that writes NCCL_TOPO_DUMP_FILE
NCCL_TOPO_SPLIT_MLOPART | 2.30.7 | | 1 | show GPU partitions apart in the topology
NCCL_UNPACK_DOUBLE_NCHANNELS | 2.22.3 | | 1 | twice the channels where the network unpacks
NCCL_WARN_ENABLE_DEBUG_INFO | 2.19.4 | | 0 | print debug lines with warnings
NCCL_WIN_STRIDE | 2.27.3 | | automatic | address distance of windows
NCCL_WORK_ARGS_BYTES | 2.22.3 | | automatic | bytes of kernel arguments
NCCL_WORK_FIFO_BYTES | 2.22.3 | | 1048576 | bytes of the work queue
NCCL_AGG_ALLOC_MODE | 2.10.3 | until 2.12.12 | | how small operations were put together
NCCL_AGG_CHANNEL_SIZE | 2.10.3 | until 2.19.4 | automatic | bytes per channel for grouped calls
NCCL_CREATE_THREAD_CONTEXT | 2.13.4 | until 2.30.4 | 0 | a CUDA context per proxy thread
NCCL_CUDA_PATH | 2.13.4 | until 2.20.5 | | where the CUDA library was looked for
NCCL_GDRCOPY_TAIL_ENABLE | 2.9.6 | until 2.11.4 | 1 | GDRCopy for the tail pointer
NCCL_GIN_COUNTER_POOL_SIZE | 2.28.7 | until 2.29.7 | 524288 | counters of GPU-initiated networking
NCCL_GIN_EXCLUSIVE_CONTEXTS | 2.29.7 | until 2.29.7 | | contexts of GPU-initiated networking
NCCL_GIN_NCONTEXTS | 2.28.7 | until 2.29.7 | automatic | contexts of GPU-initiated networking
NCCL_GIN_SIGNAL_POOL_SIZE | 2.28.7 | until 2.29.7 | 524288 | signals of GPU-initiated networking
NCCL_IB_GDR_LEVEL | | until 2.3 use NCCL_NET_GDR_LEVEL | | GPU Direct RDMA up to this distance
NCCL_PROXY_PROFILE | 2.12.7 | until 2.22.3 use NCCL_PROFILER_PLUGIN | | file for the proxy's trace
NCCL_RINGS | | until 2.4.8 use NCCL_GRAPH_FILE | | rings given by hand
NCCL_SHARED_BUFF_COUNT | 2.8.3 | until 2.8.4 | automatic | shared buffers
NCCL_SHM_MEMCPY_MODE | 2.13.4 | until 2.30.4 | 1 | side that copies when the copy engine is used
NCCL_SHM_USE_CUDA_MEMCPY | 2.13.4 | until 2.30.4 | 0 | copy engine for shared memory
NCCL_THREAD_THRESHOLD | | until 2.4.8 use NCCL_THREAD_THRESHOLDS | | size for more threads
NCCL_WORK_FIFO_DEPTH | 2.13.4 | until 2.21.5 use NCCL_WORK_FIFO_BYTES | 65536 | work queue entries
"""
