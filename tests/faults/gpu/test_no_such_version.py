from tests.analysis.source.made_sources import dockerfile, shell
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "no-such-version",
    flags(
        "error",
        shell("pip install --pre 'torch==2.5.0.dev*.cu124'\n"),
        lines=[1],
        saying=["wildcard may only be the last part", "pip install torch==2.5.1"],
    ),
    flags(
        "error",
        shell("python3 -m pip install -U torch==2.3.0.cu121\n"),
        lines=[1],
        saying=["2.3.0+cu121"],
    ),
    flags(
        "error",
        shell("cd /w\nuv pip install nvidia-nccl-cu12==2.22.4\n"),
        lines=[2],
        saying=["nvidia-nccl-cu12 2.22.4 was never released", "2.22.3"],
    ),
    flags(
        "error",
        dockerfile("FROM python:3.11\nRUN pip3 install numpy torch==2.3.2\n"),
        lines=[2],
        saying=["was never released", "2.3.0, 2.3.1"],
    ),
    flags(
        "note",
        shell("pip install --pre torch==2.6.0.dev20241110+cu124\n"),
        lines=[1],
        saying=["nightly", "torch==2.6.0"],
    ),
    flags(
        "error",
        shell("apt-get install -y libnccl2=2.19.2-1+cuda12.2\n"),
        lines=[1],
        saying=["NCCL 2.19.2 was never released", "2.19.1, 2.19.3, 2.19.4"],
    ),
    flags(
        "error",
        shell("git clone -b v2.23.5-1 https://github.com/NVIDIA/nccl.git\n"),
        lines=[1],
        saying=["2.23.4"],
    ),
    flags(
        "warning",
        dockerfile("FROM x\nENV NCCL_VERSION=2.20.4-1\n"),
        lines=[2],
        saying=["NCCL 2.20.4"],
    ),
    leaves(shell("apt-get install libnccl2=2.21.5-1+cuda12.4; export NCCL_VERSION=2.21.5-1\n")),
    leaves(shell("git clone -b v2.13.9-1 https://github.com/NVIDIA/nccl-tests.git\n")),
    leaves(shell("pip install torch==2.4.1 nvidia-nccl-cu12==2.21.5 'torch>=2.1,<3'\n")),
    leaves(shell("pip install torch==2.4.* 'torch==2.4.1+cu121' torch~=2.4 torch==99.1.7\n")),
    leaves(shell('pip install "torch==$VERSION" torch==<version> torch\n')),
    leaves(shell("pip install ourlib==2.4.0.dev*.x; echo torch==2.3.2\n")),
    leaves(shell("pip install -r requirements.txt --index-url https://x/whl?a==b\n")),
    leaves(shell("pip list | grep torch==2.3.2\n")),
)
