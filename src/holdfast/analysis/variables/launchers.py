"""Names that launchers set for the processes they start, and that torch and frameworks read.

The scripts of a job read them; setting them by hand is only right where no launcher does.
"""

ENV_RENDEZVOUS = """
[torch 2.13.0 torch/distributed/rendezvous.py: env://]
RANK | | | | number of this process among all; the launcher sets it
WORLD_SIZE | | | | number of processes of the job; the launcher sets it
MASTER_ADDR | | | | where the store of rank 0 listens; torchrun sets it from --master-addr
MASTER_PORT | | | | port of that store; torchrun and DeepSpeed set it from --master-port (29500)
USE_LIBUV | | | 1 | which server the store uses: 1 is libuv, 0 the older one
"""

RANKS = """
[torch 2.13.0 torch/distributed/elastic/agent/server/local_elastic_agent.py]
LOCAL_RANK | | | | number of this process on its machine; set by torchrun
LOCAL_WORLD_SIZE | | | | processes on this machine; set by torchrun
GROUP_RANK | | | | number of this machine; set by torchrun
GROUP_WORLD_SIZE | | | | number of machines; set by torchrun
ROLE_RANK | | | | number among the processes of this role; set by torchrun
ROLE_WORLD_SIZE | | | | processes of this role; set by torchrun
ROLE_NAME | | | | name of the role, from --role; set by torchrun
"""

LIGHTNING = """
[lightning 2.6.6 fabric/plugins/environments, fabric/utilities/seed.py, utilities/argparse.py]
NODE_RANK | | | 0 | number of this machine, where no launcher tells; torch itself does not read it
PL_GLOBAL_SEED | | | | seed that seed_everything takes when none is given
PL_SEED_WORKERS | | | 0 | seed the workers of data loaders too
PL_TRAINER_* | | | | arguments of Trainer()
LT_* | | | | what the command `fabric run` was given
"""

MPI = """
[Open MPI 5 documentation, environment of MPI applications; accelerate 1.15.0 state.py]
OMPI_COMM_WORLD_RANK | | | | number of this process; set by Open MPI
OMPI_COMM_WORLD_SIZE | | | | number of processes; set by Open MPI
OMPI_COMM_WORLD_LOCAL_RANK | | | | number of this process on its machine; set by Open MPI
OMPI_COMM_WORLD_LOCAL_SIZE | | | | processes on this machine; set by Open MPI
OMPI_COMM_WORLD_NODE_RANK | | | | number of this process on its machine; set by Open MPI
OMPI_MCA_* | | | | a parameter of Open MPI, as `mpirun --mca NAME VALUE`; NCCL does not read it
OMPI_* | | | | set or read by Open MPI
PRTE_MCA_* | | | | a parameter of the runtime under Open MPI 5
PMIX_* | | | | set by a launcher that speaks PMIx (Open MPI, Slurm)
[MPICH and Intel MPI (Hydra); accelerate 1.15.0 utils/environment.py, DeepSpeed 0.19.6 comm/comm.py]
PMI_RANK | | | | number of this process; set by MPICH, Intel MPI, or srun --mpi=pmi2
PMI_SIZE | | | | number of processes; likewise
PMI_* | | | | set by a launcher that speaks PMI
MPI_LOCALRANKID | | | | number of this process on its machine; set by Intel MPI
MPI_LOCALNRANKS | | | | processes on this machine; set by Intel MPI
MV2_COMM_WORLD_* | | | | set by MVAPICH2
"""
