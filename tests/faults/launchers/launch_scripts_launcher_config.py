"""What lint says of launch lines: the cases of launcher-config."""

from __future__ import annotations

from tests.analysis.source.made_sources import hostfile, shell
from tests.faults.table import flags, leaves

BATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
MEET = "--rdzv-backend c10d --rdzv-endpoint $H:29400"

CASES = (
    flags(
        "warning",
        shell("export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node=4 x.py\n"),
        lines=[2],
        saying=["leaves 2 GPUs", "invalid device ordinal", "`--nproc-per-node=2`"],
    ),
    flags(
        "warning",
        shell("CUDA_VISIBLE_DEVICES=3 accelerate launch --num_processes 2 x.py\n"),
        lines=[1],
        saying=["leaves 1 GPU"],
    ),
    flags(
        "warning",
        shell(BATCH + f"srun torchrun --nnodes=2 --nproc-per-node=8 {MEET} x.py\n"),
        lines=[4],
        saying=["the batch script requests 4 GPUs"],
    ),
    flags(
        "warning",
        shell("docker run --gpus '\"device=2,3\"' img torchrun --nproc-per-node 4 x.py\n"),
        lines=[1],
        saying=["the container gets 2 GPUs"],
    ),
    leaves(shell("docker run --gpus all img torchrun --nproc-per-node 4 x.py\n")),
    flags(
        "error",
        shell("deepspeed --include localhost:0,1 --num_gpus 2 x.py\n"),
        lines=[1],
        saying=["Cannot specify num_nodes/gpus with include/exclude"],
    ),
    flags(
        "warning",
        shell("export CUDA_VISIBLE_DEVICES=2,3\ndeepspeed --num_gpus=2 x.py\n"),
        lines=[1],
        saying=["ignores CUDA_VISIBLE_DEVICES", "--include localhost:2,3"],
    ),
    leaves(shell("CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus 2 x.py\n")),  # the same two
    flags(
        "error",
        shell("accelerate launch --num_machines 2 --num_processes 7 x.py\n"),
        lines=[1],
        saying=["7 processes", "2 machines", "8"],
    ),
    flags(
        "error",
        shell("accelerate launch --multi_gpu --num_processes 1 x.py\n"),
        lines=[1],
        saying=["at least 2 processes"],
    ),
    flags(
        "error",
        shell("accelerate launch --multi_gpu --use_deepspeed --num_processes 4 x.py\n"),
        lines=[1],
        saying=["cannot be given together"],
    ),
    flags(
        "error",
        shell("horovodrun -np 8 -H a:2,b:4 python x.py\n"),
        lines=[1],
        saying=["8 processes", "6 slots"],
    ),
    flags(
        "warning",
        shell("mpirun -np 8 -H a,b python x.py\n"),
        lines=[1],
        saying=["2 slots", "not enough slots"],
    ),
    flags(
        "warning",
        shell("export WORLD_SIZE=16\ntorchrun --nproc-per-node=8 x.py\n"),
        lines=[1],
        saying=["WORLD_SIZE=16", "8 ranks"],
    ),
    flags(
        "error",
        shell(
            "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\n"
            f"srun torchrun --nnodes=2 --nproc-per-node=8 {MEET} x.py\n"
        ),
        lines=[3],
        saying=["8 times on each node", "--ntasks-per-node=1"],
    ),
    flags(
        "warning",
        shell(BATCH + f"srun torchrun --nnodes=3 --nproc-per-node=4 {MEET} x.py\n"),
        lines=[4],
        saying=["--nnodes=3", "2 nodes", "$SLURM_NNODES"],
    ),
    flags(
        "warning",
        shell(BATCH + "torchrun --nnodes=2 --nproc-per-node=4 x.py\n"),
        lines=[4],
        saying=["on the first only", "srun"],
    ),
    leaves(shell("export CUDA_VISIBLE_DEVICES=0,1,2,3\ntorchrun --nproc_per_node=4 x.py\n")),
    leaves(shell("export CUDA_VISIBLE_DEVICES=$G\ntorchrun --nproc_per_node=4 x.py\n")),
    leaves(shell("CUDA_VISIBLE_DEVICES='' torchrun --nproc_per_node=4 cpu.py\n")),
    leaves(shell(BATCH + f"srun torchrun --nnodes=2 --nproc-per-node=4 {MEET} x.py\n")),
    leaves(
        shell(BATCH + "srun --ntasks-per-node=1 torchrun --nnodes=$N --nproc-per-node=4 x.py\n")
    ),
    leaves(shell(BATCH + "for h in $HOSTS; do ssh $h torchrun --nnodes=2 x.py & done\nwait\n")),
    leaves(
        shell(
            "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"
            "srun python x.py\nsrun --ntasks-per-node=1 torchrun --nnodes=2 $A x.py\n"
        )
    ),
    leaves(shell("deepspeed --include localhost:0,1 x.py\ndeepspeed --num_gpus 2 x.py\n")),
    leaves(shell("export WORLD_SIZE=2\ntorchrun --nnodes=$WORLD_SIZE --nproc-per-node=8 x.py\n")),
    leaves(shell("horovodrun -np 8 -H a:4,b:4 python x.py\nhorovodrun -np 8 python x.py\n")),
    leaves(shell("mpiexec -n 8 -hosts a,b python x.py\n")),
    leaves(shell("mpirun -np 8 --oversubscribe -H a,b python x.py\n")),
    leaves(shell("accelerate launch --num_machines 2 --num_processes 16 x.py\n")),
    flags(
        "warning",
        hostfile("gpu-a slots=4\ngpu-b slots=4\ngpu-a slots=2\n"),
        lines=[3],
        saying=["gpu-a is listed twice", "multiple entries", "6 in total"],
    ),
    leaves(hostfile("gpu-a slots=4\ngpu-b slots=4\n")),
    leaves(hostfile("gpu-a\ngpu-a\ngpu-b\n")),  # a slot each
)
