"""What of `holdfast run --hosts …` is for us, and what each launcher gets."""

from __future__ import annotations

import pytest

from holdfast.analysis.job import typed_options
from holdfast.errors import ConfigError
from holdfast.run.hosts import typed
from holdfast.run.hosts.typed import HostsCommand, split
from holdfast.run.launch.flags import build_parser


def command(*words: str) -> HostsCommand:
    found = split(["--hosts", "a,b", *words])
    assert found
    return found


@pytest.mark.parametrize(
    ("argv", "hosts", "rest"),
    [
        ("--hosts a,b train.py --lr 3", "a,b", "train.py --lr 3"),
        ("--hosts=a,b --nproc-per-node 2 train.py", "a,b", "--nproc-per-node 2 train.py"),
        ("--nproc_per_node=2 --hosts a -m pkg.train -x", "a", "--nproc_per_node=2 -m pkg.train -x"),
        ("--standalone --hosts a train.py", "a", "--standalone train.py"),
        ("--no-check --env A=1 --hosts a --env B t.py --env C", "a", "--no-check t.py --env C"),
        ("--hosts a,b train.py --hosts mine", "a,b", "train.py --hosts mine"),
        ("-r 3 --hosts a -- train.py", "a", "-r 3 -- train.py"),
        ("train.py --hosts a", None, None),
        ("--nproc-per-node 2 train.py --hostfile x", None, None),
        ("--role --hosts train.py", None, None),
    ],
)
def test_what_is_before_the_script_is_ours(argv: str, hosts: str | None, rest: str | None) -> None:
    found = split(argv.split())
    assert (found and found.hosts) == hosts
    assert (found and " ".join(found.arguments)) == rest


def test_options_without_a_value_are_those_of_the_real_parser() -> None:
    alone = {
        name
        for action in build_parser()._actions
        if action.nargs == 0
        for name in action.option_strings
        if "_" not in name
    }
    assert alone <= typed_options.ALONE
    assert typed_options.ALONE - alone <= {"--virtual-local-rank"}, (
        "which older versions do not have"
    )


def test_each_launcher_gets_its_number_and_the_place() -> None:
    job = command("--max-restarts", "1", "train.py", "--lr", "3")
    assert typed.launcher_arguments(job, index=1, hosts=2, endpoint="10.0.0.1:29500", slots=8) == (
        *("--node-rank", "1", "--nnodes", "2", "--rdzv-endpoint", "10.0.0.1:29500"),
        *("--nproc-per-node", "8", "--max-restarts", "1", "train.py", "--lr", "3"),
    )
    elastic = command("--nnodes=1:2", "--nproc-per-node", "2", "train.py")
    assert typed.launcher_arguments(elastic, index=0, hosts=2, endpoint="a:1", slots=8) == (
        *("--node-rank", "0", "--rdzv-endpoint", "a:1"),
        *("--nnodes=1:2", "--nproc-per-node", "2", "train.py"),
    )
    assert (typed.least_nodes(elastic, 2), typed.least_nodes(job, 2)) == (1, 2)
    alone = typed.launcher_arguments(job, index=0, hosts=1, endpoint="", slots=None)
    assert alone == job.arguments


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--rdzv-endpoint=x:1 t.py", "--rdzv-endpoint does not go with --hosts"),
        ("--node-rank 0 t.py", "--node-rank does not go with --hosts"),
        ("--standalone t.py", "--standalone does not go with --hosts"),
        ("--nnodes 3 t.py", "--nnodes is 3, and 2 hosts are named"),
        ("--nnodes 1:4 t.py", "--nnodes is 1:4, and 2 hosts are named"),
    ],
)
def test_what_contradicts_the_hosts_is_refused(words: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        typed.refuse_contradictions(command(*words.split()), 2)


def test_what_goes_with_them_is_not() -> None:
    for words in ("t.py --node-rank 0", "--nnodes 1:2 t.py", "--master-port 3000 t.py",
                  "--rdzv-backend etcd --rdzv-endpoint e:2379 t.py"):  # fmt: skip
        typed.refuse_contradictions(command(*words.split()), 2)


def test_variables_are_named_or_holdfasts_own() -> None:
    here = {
        "HOME": "/root", "PYTHONPATH": "/x", "NCCL_DEBUG": "INFO", "WANDB_MODE": "offline",
        "HOLDFAST_LOG": "1", "HOLDFAST_TOKEN": "s" * 16, "PET_NPROC_PER_NODE": "2",
        "PET_RDZV_ENDPOINT": "x:1",
    }  # fmt: skip
    job = command("--env", "NCCL_DEBUG", "--env", "A=b=c", "t.py")
    passed = {"NCCL_DEBUG": "INFO", "A": "b=c", "HOLDFAST_LOG": "1", "PET_NPROC_PER_NODE": "2"}
    assert typed.variables(job, here) == passed
    assert typed.not_passed_on(job, here) == ["WANDB_MODE"]
    for wrong, said in (("NOT_SET", "NOT_SET: it is not set here"), ("1X=2", "NAME or NAME=VALUE")):
        with pytest.raises(ConfigError, match=said):
            typed.variables(command("--env", wrong, "t.py"), here)
