"""Commands -> launches and containers."""

from __future__ import annotations

import pytest

from tests.analysis.source.made_sources import shell


@pytest.mark.parametrize(
    ("text", "kind", "flags", "script", "arguments"),
    [
        (
            "torchrun --nproc_per_node=8 --nnodes 1:4 --standalone train.py --lr 1",
            "torchrun",
            {"nproc-per-node": "8", "nnodes": "1:4", "standalone": ""},
            "train.py",
            ["--lr", "1"],
        ),
        (
            "torchrun --nproc 2 -m pkg.train a",
            "torchrun",
            {"nproc-per-node": "2"},
            "pkg.train",
            ["a"],
        ),
        ("torchrun $ARGS train.py", "torchrun", {}, "train.py", []),
        ("torchrun $ARGS -m pkg.train --lr 1", "torchrun", {}, "pkg.train", ["--lr", "1"]),
        ("torchrun --nproc-per-node 2 $SCRIPT --lr 1", "torchrun", {}, "$SCRIPT", ["--lr", "1"]),
        ("torchrun --tee 3 -r 1 t.py", "torchrun", {"tee": "3", "redirects": "1"}, "t.py", []),
        ("torchrun --new-flag on t.py", "torchrun", {"new-flag": "on"}, "t.py", []),
        ("torchrun --new-switch t.py", "torchrun", {"new-switch": ""}, "t.py", []),
        (
            "python3.11 -m torch.distributed.run --nnodes=2 t.py",
            "torchrun",
            {"nnodes": "2"},
            "t.py",
            [],
        ),
        (
            "python -u -m torch.distributed.launch --use_env t.py",
            "torch.distributed.launch",
            {"use-env": ""},
            "t.py",
            [],
        ),
        ("holdfast run --nproc-per-node 2 t.py", "holdfast", {"nproc-per-node": "2"}, "t.py", []),
        (
            "deepspeed -H hosts --num_gpus=4 --include a:0 t.py --deepspeed",
            "deepspeed",
            {"hostfile": "hosts", "num-gpus": "4", "include": "a:0"},
            "t.py",
            ["--deepspeed"],
        ),
        (
            "accelerate launch --multi_gpu --num_processes 4 --fsdp_x 1 t.py",
            "accelerate",
            {"multi-gpu": "", "num-processes": "4", "fsdp-x": "1"},
            "t.py",
            [],
        ),
        ("python -m accelerate.commands.launch --cpu t.py", "accelerate", {"cpu": ""}, "t.py", []),
        (
            "horovodrun -np 4 --min-np 2 -H a:2,b:2 --blacklist-cooldown-range 1 9 python t.py",
            "horovodrun",
            {
                "num-proc": "4",
                "min-num-proc": "2",
                "hosts": "a:2,b:2",
                "blacklist-cooldown-range": "1 9",
            },
            "",
            ["python", "t.py"],
        ),
        (
            "mpirun -np 8 --hostfile h -N 4 -mca btl tcp --bind-to none python t.py",
            "mpirun",
            {"np": "8", "hostfile": "h", "npernode": "4", "mca": "btl tcp", "bind-to": "none"},
            "",
            ["python", "t.py"],
        ),
        (
            "srun -N2 -n 16 --gpus-per-node=8 --exclusive -l python t.py",
            "srun",
            {"nodes": "2", "ntasks": "16", "gpus-per-node": "8", "exclusive": "", "label": ""},
            "",
            ["python", "t.py"],
        ),
        ("python -u -W ignore t.py --x", "python", {"u": "", "W": "ignore"}, "t.py", ["--x"]),
        ("python -m pkg.train", "python", {"module": ""}, "pkg.train", []),
    ],
)
def test_launches(
    text: str, kind: str, flags: dict[str, str], script: str, arguments: list[str]
) -> None:
    launch = shell(text).launches[0]
    assert (launch.kind, launch.script) == (kind, script)
    assert [word.text for word in launch.script_arguments] == arguments
    for name, value in flags.items():
        flag = launch.flag(name)
        assert flag is not None, name
        assert flag.value == value


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --help",
        "accelerate config",
        "holdfast check",
        "python -c 'import torch'",
        "python --version",
        "python -m pip install torch",
        "python -",
        "python",
        "which torchrun",
        "command -v torchrun",
        "echo torchrun train.py",
        "horovodrun --check-build",
    ],
)
def test_no_launches(text: str) -> None:
    assert shell(text).launches == ()


@pytest.mark.parametrize(
    ("text", "around"),
    [
        ("srun torchrun t.py", ("srun",)),
        ("srun bash -c 'torchrun t.py'", ("srun",)),
        ("ssh host 'cd x && torchrun t.py'", ("ssh",)),
        ("ssh $host 'torchrun t.py'", ("ssh",)),
        ('ssh "${OPTIONS[@]}" "$host" torchrun t.py', ("ssh",)),
        ('ssh $host "cd $PWD && torchrun t.py"', ("ssh",)),
        ("docker run --rm image torchrun t.py", ("docker",)),
        ("srun docker run image bash -lc 'torchrun t.py'", ("srun", "docker")),
        ("mpiexec -n 2 torchrun t.py", ("mpirun",)),
        ("sudo timeout 5 torchrun t.py", ()),
    ],
)
def test_launchers_around(text: str, around: tuple[str, ...]) -> None:
    assert shell(text).launches[-1].around == around


def test_unknown_values_are_marked() -> None:
    launch = shell("torchrun --nnodes=$N --master-port ${P:-1} t.py").launches[0]
    assert [(flag.value, flag.known) for flag in launch.flags] == [("$N", False), ("1", True)]


def test_sbatch_lines() -> None:
    source = shell(
        """
        #!/bin/bash
        #SBATCH --nodes=2 --gres gpu:8
        ##SBATCH --nodes=9
        #SBATCH -t 1-00:00   # a day
        #SBATCH --job-name="my job"

        echo x
        #SBATCH --nodes=7
        """
    )
    job = source.launches[0]
    found = [(flag.name, flag.value, flag.place.line, flag.place.column) for flag in job.flags]
    assert job.kind == "sbatch"
    assert found == [
        ("nodes", "2", 2, 9),
        ("gres", "gpu:8", 2, 19),
        ("time", "1-00:00", 4, 9),
        ("job-name", "my job", 5, 9),
    ]
    assert source.machines == 2


@pytest.mark.parametrize(
    ("text", "engine", "image", "options", "words"),
    [
        (
            "docker run -it --rm --net host --gpus all -v /a:/b -p 1:1 img:1 torchrun t.py",
            "docker",
            "img:1",
            [("network", "host"), ("gpus", "all"), ("volume", "/a:/b"), ("publish", "1:1")],
            ["torchrun", "t.py"],
        ),
        (
            "sudo docker container run --sysctl=a=1 --sysctl b=2 --privileged img",
            "docker",
            "img",
            [("sysctl", "a=1"), ("sysctl", "b=2"), ("privileged", "")],
            [],
        ),
        (
            "podman create --ipc=host --ulimit memlock=-1 img",
            "podman",
            "img",
            [("ipc", "host")],
            [],
        ),
        (
            'docker run --rm "${OPTIONS[@]}" $IMAGE torchrun t.py',
            "docker",
            "$IMAGE",
            [("rm", "")],
            ["torchrun", "t.py"],
        ),
        (
            "docker run $MORE --gpus 2 $MOUNTS -v /a:/b hub.example/ours/img torchrun t.py",
            "docker",
            "hub.example/ours/img",
            [("gpus", "2"), ("volume", "/a:/b")],
            ["torchrun", "t.py"],
        ),
        ("docker run $MORE img:2 torchrun t.py", "docker", "img:2", [], ["torchrun", "t.py"]),
        ("docker run $IMAGE scripts/go.sh", "docker", "$IMAGE", [], ["scripts/go.sh"]),
        ("docker run $IMAGE --lr 1 t.py", "docker", "$IMAGE", [], ["--lr", "1", "t.py"]),
        ("docker run hub/img:$TAG $COMMAND", "docker", "hub/img:$TAG", [], ["$COMMAND"]),
        ("docker --context far run -eA=1 -d img", "docker", "img", [("env", "A=1")], []),
        (
            "singularity exec --nv -B /a img.sif ls",
            "apptainer",
            "img.sif",
            [("volume", "/a")],
            ["ls"],
        ),
    ],
)
def test_containers(
    text: str, engine: str, image: str, options: list[tuple[str, str]], words: list[str]
) -> None:
    (container,) = shell(text).containers
    assert (container.engine, container.image) == (engine, image)
    assert set(options) <= {(option.name, option.value) for option in container.options}
    assert [word.text for word in container.words] == words


@pytest.mark.parametrize(
    "text", ["docker ps", "docker exec -it x ls", "docker compose up", "docker"]
)
def test_no_containers(text: str) -> None:
    assert shell(text).containers == ()
