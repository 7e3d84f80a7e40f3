from tests.analysis.source.made_sources import shell
from tests.faults.table import flags, leaves, lint_table

LINE = "torchrun --nnodes=2:8 --rdzv-backend c10d --rdzv-endpoint {} train.py\n"

test_lint = lint_table(
    "endpoint-single-point",
    flags(
        "note",
        shell("#!/bin/bash\n#SBATCH --partition=gpu-spot\nsrun " + LINE.format("node-1:29400")),
        lines=[3],
        saying=["node-1:29400", "gpu-spot", "a machine that stays"],
    ),
    flags(
        "note",
        shell(
            "gcloud compute instances create w0 --provisioning-model=SPOT\n"
            + LINE.format("w0:29400")
        ),
        lines=[2],
        saying=["SPOT"],
    ),
    leaves(shell(LINE.format("node-1:29400"))),
    leaves(shell("#!/bin/bash\n#SBATCH --partition=gpu\nsrun " + LINE.format("node-1:29400"))),
    leaves(  # a fixed number of nodes: the others are not expected to continue
        shell(
            "#!/bin/bash\n#SBATCH --requeue\n"
            "srun torchrun --nnodes=4 --rdzv-backend c10d --rdzv-endpoint a:29400 train.py\n"
        )
    ),
)
