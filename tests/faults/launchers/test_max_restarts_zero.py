from tests.analysis.source.made_sources import shell
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import (
    check_table,
    flags,
    leaves,
    lint_table,
    not_applicable,
    silent,
    speaks,
)

ELASTIC = a_plan(min_nodes=1, max_nodes=4, environment={"PET_MAX_RESTARTS": "0"})

test_check = check_table(
    "max-restarts-zero",
    speaks("note", a_machine(ELASTIC), saying=["1 to 4 nodes", "export PET_MAX_RESTARTS=3"]),
    silent(a_machine(a_plan(min_nodes=1, max_nodes=4, environment={"PET_MAX_RESTARTS": "3"}))),
    not_applicable(a_machine(a_plan(min_nodes=1, max_nodes=4)), saying=["command"]),
    not_applicable(a_machine(), saying=["fixed"]),
)

MEET = "--rdzv-backend c10d --rdzv-endpoint a:29400"

test_lint = lint_table(
    "max-restarts-zero",
    flags(
        "note",
        shell(f"torchrun --nnodes=1:4 {MEET} train.py\n"),
        lines=[1],
        saying=["no --max-restarts, so 0", "--max-restarts=3"],
    ),
    flags(
        "note",
        shell(f"torchrun --nnodes=2:4 {MEET} \\\n  --max_restarts=0 train.py\n"),
        lines=[2],
        saying=["--max-restarts=0"],
    ),
    flags(
        "note",
        shell(
            """
            #!/bin/bash
            #SBATCH --nodes=4
            #SBATCH --requeue
            srun torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=$H:29400 train.py
            """
        ),
        lines=[4],
        saying=["--requeue", "fixed --nnodes=4", "600 s"],
    ),
    leaves(shell(f"torchrun --nnodes=1:4 --max-restarts 3 {MEET} train.py\n")),
    leaves(shell(f"PET_MAX_RESTARTS=5 torchrun --nnodes=1:4 {MEET} train.py\n")),
    leaves(shell(f"torchrun --nnodes=1:4 --max-restarts $N {MEET} train.py\n")),
    leaves(shell("torchrun --nnodes=2 --max-restarts 0 train.py\n")),
    leaves(shell("torchrun --standalone --nproc-per-node 8 train.py\n")),
    leaves(shell(f'torchrun --nnodes=1:4 {MEET} "${{EXTRA[@]}}" train.py\n')),
)
