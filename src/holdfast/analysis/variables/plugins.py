"""NCCL_ names that belong to plugins, tests and builds.

Container images carry many of them; they are no slip of the user's.
"""

PLUGINS = """
[NVIDIA/nccl 2.30.7 plugins/profiler, plugins/tuner]
NCCL_INSPECTOR_* | 2.28 | | | the inspector profiler plugin
NCCL_PROFILE_* | 2.23 | | | the example profiler plugin
NCCL_PROFILER_CE_* | 2.29 | | | the example profiler plugin
NCCL_TUNER_CONFIG_FILE | 2.27 | | | the example tuner plugin
[NVIDIA/nccl-tests README]
NCCL_TESTS_* | | | | nccl-tests: how ranks are split, which device, how results are shown
NCCL_TESTS_SPLIT | | | | nccl-tests: run the ranks as several groups
[Mellanox/nccl-rdma-sharp-plugins]
NCCL_SHARP_* | | | | the SHARP plugin
NCCL_IBEXT_DISABLE | | | 0 | the RDMA plugin: do not use it
NCCL_PLUGIN_P2P | | | ib | the RDMA plugin: which point-to-point layer
[Google Cloud: GPUDirect-TCPX and TCPXO plugins]
NCCL_GPUDIRECTTCPX_* | | | | the GPUDirect-TCPX plugin
NCCL_FASTRAK_* | | | | the GPUDirect-TCPXO plugin
NCCL_TUNER_CONFIG_PATH | | | | the tuner that comes with those plugins
NCCL_SHIMNET_* | | | | the shim that comes with those plugins
"""

BUILD = """
[nvidia/cuda container images; pytorch/pytorch cmake/Modules/FindNCCL.cmake]
NCCL_VERSION | | | | left by container images
NCCL_HOME | | | | where a build looks for NCCL
NCCL_ROOT | | | | where a build looks for NCCL
NCCL_ROOT_DIR | | | | where a build looks for NCCL
NCCL_INCLUDE_DIR | | | | where a build looks for NCCL's headers
NCCL_INCLUDE_DIRS | | | | where a build looks for NCCL's headers
NCCL_LIB_DIR | | | | where a build looks for NCCL's library
NCCL_LIBRARY | | | | where a build looks for NCCL's library
NCCL_LIBRARIES | | | | where a build looks for NCCL's library
NCCL_LIBRARY_PATH | | | | where a build looks for NCCL's library
NCCL_LINK | | | | how Horovod's build links NCCL
"""
