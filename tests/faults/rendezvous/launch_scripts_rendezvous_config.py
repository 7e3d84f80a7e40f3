"""What lint says of launch lines: the cases of rendezvous-config."""

from __future__ import annotations

from tests.analysis.source.made_sources import compose, shell, yaml
from tests.faults.table import flags, leaves

STATIC = "--master-addr a --master-port 29500 --node-rank $R"
C10D = "--rdzv-backend c10d --rdzv-endpoint a:29400"
TWO = "--nnodes 2 --nproc-per-node 8 --master-addr a"

CASES = (
    flags(
        "error",
        shell(f"torchrun {STATIC} \\\n  --nnodes=1:4 x.py\n"),
        lines=[2],
        saying=["waits for all 4 nodes", "torchrun's default", "--rdzv-backend c10d"],
    ),
    flags(
        "error",
        shell(f"torchrun --nnodes 2:4 --rdzv_backend=static {STATIC} x.py\n"),
        lines=[1],
        saying=["static (named)"],
    ),
    flags(
        "error",
        shell(f"torchrun --nnodes=4:2 {C10D} x.py\n"),
        lines=[1],
        saying=["min_nodes must be > 0", "`--nnodes=2:4`"],
    ),
    flags(
        "error",
        shell("torchrun --standalone --nnodes=2 x.py\n"),
        lines=[1],
        saying=["each node would wait for the others"],
    ),
    flags(
        "warning",
        shell("torchrun --standalone --rdzv-endpoint=a:29400 x.py\n"),
        lines=[1],
        saying=["--standalone overrides --rdzv-endpoint"],
    ),
    flags(
        "note",
        shell("torchrun --standalone --master-port 29600 x.py\n"),
        lines=[1],
        saying=["overrides --master-port"],
    ),
    flags(
        "error",
        shell("torchrun --nnodes=2 --node-rank=$R x.py\n"),
        lines=[1],
        saying=["without --master-addr", "127.0.0.1"],
    ),
    flags(
        "error",
        shell("torchrun --nnodes=2 --master-addr=a --master-port=29500 x.py\n"),
        lines=[1],
        saying=["without --node-rank", "each takes itself for node 0"],
    ),
    flags(
        "error",
        shell("torchrun --nnodes=2 --rdzv-backend=c10d --master-addr=a x.py\n"),
        lines=[1],
        saying=["its own localhost", "--rdzv-endpoint HOST:29400"],
    ),
    flags(
        "note",
        shell("torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a x.py\n"),
        lines=[1],
        saying=["29400"],
    ),
    flags(
        "error",
        shell("torchrun --nnodes=2 --node-rank=$R --rdzv-endpoint=a x.py\n"),
        lines=[1],
        saying=["Port is absent"],
    ),
    flags(
        "note",
        shell(f"torchrun --nnodes=2 {C10D} --node-rank=1 x.py\n"),
        lines=[1],
        saying=["--node-rank is not used"],
    ),
    flags(
        "warning",
        shell(f"torchrun --nnodes=2 {C10D} --rdzv-id=$RANDOM x.py\n"),
        lines=[1],
        saying=["differs from node to node", "my-job-17"],
    ),
    flags(  # an excerpt leaves out what its writer thought plain
        "warning",
        shell("torchrun --nnodes=2 x.py\n", complete=False),
        lines=[1],
        saying=["without --master-addr"],
    ),
    leaves(shell("torchrun --nnodes=8 ... x.py\n", complete=False)),
    leaves(  # Kubeflow's operator hands PET_ variables to its pods
        yaml(
            """
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: worker
                  image: trainer
                  command: [torchrun, --nnodes=2, train.py]
            """
        )
    ),
    flags(
        "error",
        shell(
            f"ssh a torchrun {TWO} --master-port 29500 --node-rank 0 x.py --lr 1 &\n"
            f"ssh b torchrun {TWO} --master-port 29600 --node-rank 1 x.py --lr 1\n"
        ),
        lines=[2],
        saying=["node 1 expects the master on port 29600, node 0 (line 1) on 29500"],
    ),
    flags(
        "error",
        shell(
            f"ssh -p 2222 a 'torchrun {TWO} --node-rank 1 x.py' &\n"
            f"ssh user@b 'torchrun {TWO} --node-rank 1 x.py'\n"
        ),
        lines=[2],
        saying=["a (line 1) and user@b are both --node-rank 1"],
    ),
    flags(
        "error",
        compose(
            f"""
            services:
              one:
                image: trainer
                command: torchrun {TWO} --node-rank 0 x.py
              two:
                image: trainer
                command: torchrun {TWO} --node-rank 0 x.py
            """
        ),
        lines=[7],
        saying=["one (line 4) and two are both --node-rank 0"],
    ),
    flags(
        "error",
        shell(
            f"docker run --name a --network job img torchrun {TWO} --node-rank 0 x.py &\n"
            f"docker run --name b --network job img torchrun {TWO} --node-rank 0 x.py\n"
        ),
        lines=[2],
        saying=["a (line 1) and b are both --node-rank 0"],
    ),
    leaves(  # two nodes as they should be, then another job
        shell(
            f"ssh a torchrun {TWO} --master-port 29500 --node-rank 0 x.py &\n"
            f"ssh b torchrun {TWO} --master-port 29500 --node-rank 1 x.py\n"
            f"ssh a torchrun {TWO} --master-port 29600 --node-rank 0 y.py &\n"
            f"ssh b torchrun {TWO} --master-port 29600 --node-rank 1 y.py\n"
        )
    ),
    leaves(  # either of them, and hosts that only a run tells
        shell(
            f"torchrun {TWO} --node-rank 0 x.py\ntorchrun {TWO} --node-rank 0 x.py\n"
            f"ssh $A torchrun {TWO} --node-rank 0 z.py\nssh $B torchrun {TWO} --node-rank 0 z.py\n"
            f"ssh a torchrun {TWO} --node-rank 0 w.py\nssh a torchrun {TWO} --node-rank 0 w.py\n"
        )
    ),
    leaves(shell(f"torchrun --nnodes=1:4 {C10D} --rdzv-id=job x.py\n")),
    leaves(shell(f"torchrun --nnodes=2 {STATIC} x.py\n")),
    leaves(shell("torchrun --standalone --nnodes=1 --nproc-per-node=8 x.py\n")),
    leaves(shell("torchrun --nproc-per-node=8 x.py\ntorchrun --nnodes=$N --node-rank=$R x.py\n")),
    leaves(shell("torchrun --nnodes=1:4 $RDZV x.py\ntorchrun --nnodes=2 ${ARGS[@]} x.py\n")),
    leaves(shell("PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=a:1 torchrun --nnodes=1:4 x.py\n")),
    leaves(shell(f"srun torchrun --nnodes=2 {C10D} --rdzv-id=$RANDOM x.py\n")),
    leaves(shell("torchrun --nnodes=2 --rdzv-backend=$B --rdzv-endpoint=a x.py\n")),
)
