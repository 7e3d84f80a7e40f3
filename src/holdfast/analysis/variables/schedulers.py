"""What batch systems and clusters leave in the environment of a job.

Nobody sets these by hand; a stale copy (a shell inside an old allocation, an `--export=ALL`)
makes Lightning, Accelerate and srun believe in a job that is not there.
"""

SLURM = """
[https://slurm.schedmd.com/sbatch.html, srun.html: output environment variables]
SLURM_JOB_ID | | | | this job
SLURM_JOB_NAME | | | | its name
SLURM_JOB_NODELIST | | | | its machines, compressed: `scontrol show hostnames` spells them out
SLURM_JOB_NUM_NODES | | | | number of machines
SLURM_JOB_PARTITION | | | | its partition
SLURM_JOB_START_TIME | 22.05 | | | when it began, seconds since 1970
SLURM_JOB_END_TIME | 22.05 | | | when Slurm ends it, seconds since 1970, as of its start
SLURM_NNODES | | | | number of machines
SLURM_NODELIST | | | | its machines
SLURM_NTASKS | | | | processes that srun starts
SLURM_NPROCS | | | | processes that srun starts
SLURM_NTASKS_PER_NODE | | | | from --ntasks-per-node; only set where that was given
SLURM_TASKS_PER_NODE | | | | processes on each machine, as in 8(x4)
SLURM_PROCID | | | | number of this process; only in what srun started
SLURM_LOCALID | | | | number of this process on its machine; only in what srun started
SLURM_NODEID | | | | number of this machine
SLURM_CPUS_PER_TASK | | | | from --cpus-per-task; srun ignores it since 22.05: SRUN_CPUS_PER_TASK
SRUN_CPUS_PER_TASK | 22.05 | | | srun's --cpus-per-task
SLURM_CPUS_ON_NODE | | | | processors this job may use on this machine
SLURM_GPUS_ON_NODE | | | | GPUs this job may use on this machine
SLURM_LAUNCH_NODE_IPADDR | | | | address of the machine srun runs on
SLURM_RESTART_COUNT | | | | how often Slurm requeued this job; only set from the first time on
SLURM_EXPORT_ENV | | | ALL | which variables srun hands on
SLURM_* | | | | set by Slurm for this job, or an option of sbatch and srun
"""

OTHERS = """
[IBM Spectrum LSF 10.1 reference, environment variables set for jobs]
LSB_JOBID | | | | this job
LSB_HOSTS | | | | its machines, one entry for each slot
LSB_MCPU_HOSTS | | | | its machines and their slots
LSB_DJOB_HOSTFILE | | | | file with its machines
LSB_DJOB_RANKFILE | | | | file with the machine of each rank
LSB_* | | | | set by LSF for this job
[OpenPBS and TORQUE qsub(1B), environment of a job]
PBS_JOBID | | | | this job
PBS_NODEFILE | | | | file with its machines
PBS_* | | | | set by PBS for this job
[https://kubernetes.io/docs/concepts/services-networking/service, environment variables]
KUBERNETES_SERVICE_HOST | | | | set in every container of a pod
KUBERNETES_SERVICE_PORT | | | | set in every container of a pod
"""
