from holdfast.analysis.source.source import LintingMachine
from tests.analysis.source.made_sources import shell
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "deepspeed-port-ignored",
    flags(
        "warning",
        shell("export MASTER_PORT=29777\ndeepspeed --num_gpus 4 train.py\n"),
        lines=[1],
        saying=["deepspeed does not read MASTER_PORT", "here to 29500", "--master_port"],
    ),
    flags(
        "warning",
        shell("MASTER_PORT=29777 deepspeed --master_port 29888 train.py\n"),
        lines=[1],
        saying=["29777", "29888"],
    ),
    flags(
        "warning",
        shell("export MASTER_PORT=29777\ntorchrun --nproc-per-node 8 train.py\n"),
        lines=[1],
        saying=["torchrun does not read MASTER_PORT", "a free port"],
    ),
    flags(
        "warning",
        shell("export MASTER_PORT=29777\ntorchrun train.py\n", here=LintingMachine(torch="2.9.1")),
        lines=[1],
        saying=["here to 29500"],
    ),
    flags(
        "error",
        shell(
            """
            export MASTER_ADDR=node-a
            python -m torch.distributed.run --nnodes 2 --node-rank $R --master-port 29500 x.py
            """
        ),
        lines=[1],
        saying=["127.0.0.1", "different machine on every node", "--master-addr"],
    ),
    flags(
        "warning",
        shell("export MASTER_PORT=29777\naccelerate launch --num_processes 4 train.py\n"),
        lines=[1],
        saying=["accelerate launch --main_process_port"],
    ),
    flags(
        "warning",
        shell("export MASTER_PORT=29777\naccelerate launch --multi_gpu train.py\n"),
        lines=[1],
        saying=["--main_process_port"],
    ),
    leaves(shell("export MASTER_PORT=29777\naccelerate launch train.py\n")),  # one process
    leaves(shell("export MASTER_PORT=29777\ndeepspeed --master_port $MASTER_PORT train.py\n")),
    leaves(shell("export MASTER_PORT=29777\nsrun python train.py\n")),
    leaves(shell("export MASTER_PORT=29777\nsrun python train.py\ntorchrun train.py\n")),
    leaves(shell("MASTER_PORT=29777\ndeepspeed train.py\n")),  # never exported: no program sees it
    leaves(shell("export MASTER_PORT=29500\ndeepspeed train.py\n")),
    leaves(shell("export MASTER_PORT=29777\ntorchrun $ARGS train.py\n")),
    leaves(shell("export MASTER_PORT=29777\ntorchrun --rdzv-endpoint=a:$MASTER_PORT train.py\n")),
    leaves(shell("export MASTER_ADDR=localhost\ntorchrun --nproc-per-node 2 train.py\n")),
    leaves(shell("export MASTER_PORT=29777\naccelerate launch --config_file c.yaml train.py\n")),
)
