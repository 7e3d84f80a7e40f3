"""torchrun's flags mean what they mean to torchrun; ours are added."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import run as torchrun

from holdfast.run.launch import flags
from tests.places import TARGETS

TARGET = TARGETS / "parse_flags.py"
OURS = {"grace", "lease", "patience", "no_check", "dry_run", "runs", "no_pty", "token_file",
        "hosts", "hostfile", "remote_python", "env", "verify_replicas", "rules"}  # fmt: skip
NEWEST = {"log_line_prefix_template", "print_completion"}
"""of torch 2.15: ours where the installed one has none"""

# What older versions do not know: left out there.
NEWER = ("--shutdown-timeout", "--signals-to-handle", "--duplicate-stdout-filters",
         "--virtual-local-rank")  # fmt: skip
EVERY_KIND = [
    "--nproc-per-node=2", "--nnodes", "1:1", "--rdzv_id", "seven", "--max_restarts", "1",
    "--monitor-interval", "2.5", "--role", "learner", "--log-dir", "logs", "-r", "3",
    "-t", "0:1,1:2", "--local-ranks-filter", "0,1", "--master-port", "29600", "--node_rank", "0",
    "--shutdown-timeout=7", "--signals-to-handle=SIGTERM,SIGUSR1", "--start-method", "fork",
    "--duplicate-stdout-filters=loss,a,,b", "--virtual-local-rank", "--run-path",
    "/train.py", "--lr", "1", "--nproc-per-node", "9", "--patience", "5",
]  # fmt: skip

KNOWN = torchrun.get_args_parser().format_help()

CASES: dict[str, dict[str, Any]] = {
    "every kind": {
        "argv": [
            word for word in EVERY_KIND if not word.startswith(NEWER) or word.split("=")[0] in KNOWN
        ]
    },
    "plain": {"argv": ["train.py"]},
    "no rules": {"argv": ["--rules", "nowhere.toml", "train.py"], "stock": ["train.py"]},
    "module": {"argv": ["-m", "package.train", "-m", "x"]},
    "no python": {"argv": ["--no-python", "./train.sh", "--no-python"]},
    "dashes": {"argv": ["--nproc-per-node", "2", "--", "train.py", "--", "x"]},
    "environment": {
        "argv": ["train.py"],
        "environment": {
            "PET_NPROC_PER_NODE": "5", "PET_MAX_RESTARTS": "2", "PET_MASTER_PORT": "29700",
            "PET_STANDALONE": "0", "PET_MODULE": "1",
        },
    },
    "flag beats environment": {
        "argv": ["--max-restarts", "4", "train.py"],
        "environment": {"PET_MAX_RESTARTS": "2"},
    },
    "ours": {
        "argv": ["--patience", "8", "--no-check", "--dry-run", "--runs", "/d",
                 "--verify-replicas", "100", "train.py"],
        "stock": ["train.py"],
    },
    "standalone": {"argv": ["--standalone", "--master-port", "29600", "train.py"]},
    "c10d": {"argv": ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:29611", "t.py"]},
    "c10d, any port": {"argv": ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "t.py"]},
    "static endpoint": {"argv": ["--rdzv-endpoint", "10.0.0.7:29612", "t.py"]},
    "conf": {"argv": ["--rdzv-backend=c10d", "--rdzv-conf", "timeout=900,read_timeout=9", "t.py"]},
    "two nodes": {"argv": ["--nnodes", "2", "t.py"]},
    "elastic": {"argv": ["--nnodes", "1:4", "t.py"]},
    "elastic, two at least": {"argv": ["--nnodes", "2:4", "t.py"]},
    "elastic, second node": {"argv": ["--nnodes", "1:4", "--node-rank", "1", "t.py"]},
    "elastic, met elsewhere": {
        "argv": ["--nnodes", "1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=192.0.2.1:1", "t.py"]
    },
    "elastic, met here": {
        "argv": ["--nnodes", "1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:1", "t.py"]
    },
    "two nodes, any port": {"argv": ["--nnodes", "2", "--rdzv-endpoint", "a:0", "t.py"]},
    "join in words": {
        "argv": ["--nnodes=2", "--rdzv-endpoint=a:1", "--rdzv-conf=join_timeout=soon", "t.py"]
    },
    "times": {
        "argv": [
            "--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=[fd00::1]", "--rdzv-id=seven",
            "--rdzv-conf='join_timeout=60,last_call_timeout=5,is_host=1,read_timeout=3'", "t.py",
        ]
    },
    "nodes the wrong way": {"argv": ["--nnodes", "4:2", "t.py"]},
    "three numbers of nodes": {"argv": ["--nnodes", "1:2:3", "t.py"]},
    "nodes in words": {"argv": ["--nnodes", "two", "t.py"]},
    "no nodes": {"argv": ["--nnodes", "0", "t.py"]},
    "other backend": {"argv": ["--rdzv-backend", "zookeeper", "t.py"]},
    "etcd on one node": {"argv": ["--rdzv-backend=etcd", "--rdzv-endpoint=e:2379", "t.py"]},
    "etcd, no id": {
        "argv": ["--nnodes=1:2", "--rdzv-backend=etcd", "--rdzv-endpoint=e:2379", "t.py"]
    },
    "etcd, no place": {"argv": ["--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=x", "t.py"]},
    "etcd": {
        "argv": [
            "--nnodes=1:2", "--rdzv-backend=etcd-v2", "--rdzv-endpoint=e:2379,f:2380",
            "--rdzv-id=x", "--rdzv-conf=protocol=https,cacert=/ca,read_timeout=3", "t.py",
        ]
    },
    "fixed": {"argv": ["--nnodes=4", "--rdzv-backend=c10d", "--rdzv-endpoint=a:1", "t.py"]},
    "lease": {
        "argv": [
            "--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=a:1", "--lease=30", "t.py",
        ],
        "stock": ["t.py"],
    },
    "no lease": {"argv": ["--lease", "0", "t.py"]},
    "lease in etcd": {
        "argv": [
            "--nnodes=1:2", "--rdzv-backend=etcd", "--rdzv-endpoint=e:2379", "--rdzv-id=x",
            "--lease=30", "t.py",
        ]
    },
    "no patience": {"argv": ["--patience", "0", "t.py"]},
    "no steps": {"argv": ["--verify-replicas", "0", "t.py"]},
    "endless patience": {"argv": ["--patience", "nan", "t.py"]},
    "no runs": {"argv": ["--runs", "", "t.py"]},
    "negative restarts": {"argv": ["--max-restarts", "-1", "t.py"]},
    "port too high": {"argv": ["--master-port", "70000", "t.py"]},
    "unknown": {"argv": ["--nprocs", "2", "t.py"]},
    "completion": {"argv": ["--print-completion", "zsh"]},
    "completion of a shell we do not know": {"argv": ["--print_completion=tcsh"]},
    "prefix": {
        "argv": ["--log-line-prefix-template", "${rank}: ", "t.py"], "stock": ["t.py"],
        "environment": {"PET_LOG_LINE_PREFIX_TEMPLATE": "not this"},
    },
    "prefix by environment": {
        "argv": ["t.py"], "environment": {"PET_LOG_LINE_PREFIX_TEMPLATE": "${hostname} "},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def answered() -> Mapping[str, Any]:
    done = subprocess.run(
        [sys.executable, str(TARGET)], input=json.dumps(list(CASES.values())),
        env={k: v for k, v in os.environ.items() if not k.startswith("PET_")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    return {
        "stock": document["stock"],
        "ours": document["ours"],
        "cases": dict(zip(CASES, document["answers"], strict=True)),
    }


def test_every_flag_of_torchrun_is_here_unchanged(answered: Mapping[str, Any]) -> None:
    ours = {action["dest"]: action for action in answered["ours"]}
    assert len(answered["stock"]) > 25
    for action in answered["stock"]:
        if action["dest"] == "print_completion":  # torch's is for `torchrun` itself
            continue
        changed: dict[str, dict[str, Any]] = {
            name: {"default": None}
            for name in ("max_restarts", "master_port", "master_addr", "node_rank", "nnodes")
        }
        assert ours.pop(action["dest"]) == {**action, **changed.get(action["dest"], {})}
    assert OURS <= set(ours) <= OURS | NEWEST


@pytest.mark.parametrize(
    "case",
    ["every kind", "plain", "module", "no python", "dashes", "environment", "standalone", "c10d"],
)
def test_they_give_the_values_that_torchrun_sees(answered: Mapping[str, Any], case: str) -> None:
    flags = answered["cases"][case]
    ours = {name: value for name, value in flags["torchrun"].items() if name not in OURS}
    stock = {"log_line_prefix_template": "", "print_completion": None, **flags["stock"]}
    if "--max" not in " ".join(CASES[case]["argv"]) and "environment" not in CASES[case]:
        stock["max_restarts"] = 3
    if "--master-port" not in CASES[case]["argv"] and "environment" not in CASES[case]:
        stock["master_port"] = None  # before 2.13 torch fills in 29500 itself
    assert ours == stock


def test_what_follows_the_script_is_the_scripts(answered: Mapping[str, Any]) -> None:
    flags = answered["cases"]["every kind"]
    assert flags["patience"] is None
    assert flags["torchrun"]["training_script_args"][-2:] == ["--patience", "5"]


def test_restarts_are_three_unless_somebody_says_otherwise(answered: Mapping[str, Any]) -> None:
    restarts = {
        name: answered["cases"][name]["torchrun"]["max_restarts"]
        for name in ("plain", "environment", "flag beats environment")
    }
    assert restarts == {"plain": 3, "environment": 2, "flag beats environment": 4}


def test_our_own_flags(answered: Mapping[str, Any]) -> None:
    flags = answered["cases"]["ours"]
    seen = {name: flags[name] for name in ("patience", "check", "dry_run", "runs")}
    assert seen == {"patience": 8.0, "check": False, "dry_run": True, "runs": "/d"}
    assert flags["verify_replicas"] == 100
    assert answered["cases"]["plain"]["verify_replicas"] == 0


@pytest.mark.parametrize(
    ("case", "port", "remark"),
    [
        ("plain", 0, ""),
        ("standalone", 0, "--standalone"),
        ("environment", 29700, ""),
        ("c10d", 29611, "c10d"),
        ("c10d, any port", 0, "c10d"),
        ("conf", 0, "--rdzv-conf: no effect"),
        ("etcd on one node", 0, "--rdzv-backend etcd: no effect on one node"),
        ("elastic", 0, "--nnodes 1:4: starting with this node alone, no other can join"),
        ("static endpoint", 29612, "10.0.0.7: ignored, all ranks are on this node"),
    ],
)
def test_the_port_the_user_named_is_kept(
    answered: Mapping[str, Any], case: str, port: int, remark: str
) -> None:
    flags = answered["cases"][case]
    assert flags["port"] == port
    remarks = [said for said in flags["remarks"] if not said.startswith("with torch ")]
    assert remark in " ".join(remarks)
    assert bool(remark) == bool(remarks)


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        ("two nodes", "ConfigError", "nothing says where the nodes meet"),
        ("elastic, two at least", "ConfigError", "--rdzv-endpoint HOST:29400"),
        ("elastic, second node", "ConfigError", "nothing says where the nodes meet"),
        ("two nodes, any port", "ConfigError", "port 0 lets this node choose"),
        ("join in words", "ConfigError", "join_timeout must be >= 0 seconds, got 'soon'"),
        ("nodes the wrong way", "ConfigError", "MIN <= MAX, got 4:2"),
        ("three numbers of nodes", "ConfigError", "'1:2:3'"),
        ("nodes in words", "ConfigError", "'two'"),
        ("no nodes", "ConfigError", "--nnodes must be >= 1, got 0"),
        ("other backend", "EnvironmentFailure", "omit --rdzv-backend: holdfast starts its own"),
        ("etcd, no id", "ConfigError", "two jobs at one etcd would be the same"),
        ("etcd, no place", "ConfigError", "nothing says where the nodes meet"),
        ("no steps", "ConfigError", "--verify-replicas must be >= 1 steps, got 0"),
        ("no patience", "ConfigError", "--patience must be > 0 seconds, got 0"),
        ("no lease", "ConfigError", "--lease must be 3 to 86400 seconds, got 0"),
        ("lease in etcd", "ConfigError", "--lease cannot be set with etcd, where it is 7 s"),
        ("endless patience", "ConfigError", "--patience must be > 0 seconds, got nan"),
        ("no runs", "ConfigError", "--runs must name a folder, got ''"),
        ("negative restarts", "ConfigError", "--max-restarts must be >= 0, got -1"),
        ("port too high", "ConfigError", "--master-port must be 0 to 65535, got 70000"),
    ],
)
def test_what_cannot_be_is_said(
    answered: Mapping[str, Any], case: str, kind: str, words: str
) -> None:
    problem = answered["cases"][case]
    assert problem["error"] == kind
    assert words in problem["text"]


@pytest.mark.parametrize(
    ("case", "host", "port", "least", "most"),
    [
        ("elastic, met elsewhere", "192.0.2.1", 1, 1, 4),
        ("elastic, met here", "localhost", 1, 1, 4),
        ("times", "fd00::1", 29400, 2, 4),
    ],
)
def test_several_nodes_meet_where_the_user_said(
    answered: Mapping[str, Any], case: str, host: str, port: int, least: int, most: int
) -> None:
    plan = answered["cases"][case]["meeting"]["plan"]
    assert (plan["host"], plan["port"]) == (host, port)
    assert (plan["least"], plan["nodes"]) == (least, most)


def test_how_long_nodes_wait_for_each_other_is_torchruns_to_say(
    answered: Mapping[str, Any],
) -> None:
    meeting = answered["cases"]["times"]["meeting"]
    assert (meeting["join_timeout"], meeting["last_call"], meeting["is_host"]) == (60, 5, True)
    assert meeting["rdzv_id"] == "seven"
    assert meeting["remarks"] == ["--rdzv-conf read_timeout: no effect"]
    unsaid = answered["cases"]["elastic, met here"]["meeting"]
    assert (unsaid["join_timeout"], unsaid["last_call"]) == (600, 30)


def test_the_lease_is_patient_where_the_others_wait_anyway(answered: Mapping[str, Any]) -> None:
    cases = ("fixed", "elastic, met elsewhere", "etcd", "lease")
    leases = [answered["cases"][case]["meeting"]["lease"] for case in cases]
    assert [(lease["seconds"], lease["patient"]) for lease in leases] == [
        (60, True), (7, False), (7, False), (30, False)
    ]  # fmt: skip


def test_options_of_the_newest_torchrun_are_known_with_every_torch(
    answered: Mapping[str, Any],
) -> None:
    cases = answered["cases"]
    assert cases["completion"] == {"completion": "zsh"}
    refused = cases["completion of a shell we do not know"]
    assert refused["exit"] == 2
    assert "unknown shell 'tcsh' (choose from bash, zsh, fish)" in refused["text"]
    told = [cases[name]["torchrun"] for name in ("prefix", "prefix by environment", "plain")]
    templates = [flags["log_line_prefix_template"] for flags in told]
    assert templates == ["${rank}: ", "${hostname} ", ""]


def test_an_unknown_flag_is_usage(answered: Mapping[str, Any]) -> None:
    problem = answered["cases"]["unknown"]
    assert problem["exit"] == 2
    assert "holdfast run: error" in problem["text"]


def test_without_torch_one_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open')\n")
    program = (
        "from holdfast.run.launch.flags import parse\n"
        "from holdfast.errors import EnvironmentFailure\n"
        "try: parse(['t.py'])\n"
        "except EnvironmentFailure as problem: print(problem.sentence)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "torch cannot be imported by" in done.stdout
    assert "libcudart" in done.stdout


def test_a_port_that_torch_fills_in_by_itself_counts_as_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before 2.13 it did: the second job on a machine would have found 29500 taken."""
    made = torchrun.get_args_parser

    def of_an_older_torch() -> argparse.ArgumentParser:
        parser = made()
        parser.set_defaults(master_port=29500)
        return parser

    monkeypatch.setattr(torchrun, "get_args_parser", of_an_older_torch)
    assert flags.parse(["train.py"]).port == 0
    assert flags.parse(["--master-port", "29600", "train.py"]).port == 29600


def test_the_members_of_etcd_are_read(answered: Mapping[str, Any]) -> None:
    meeting = answered["cases"]["etcd"]["meeting"]
    etcd = meeting["etcd"]
    assert (etcd["endpoints"], etcd["tls"]) == ([["e", 2379], ["f", 2380]], True)
    assert etcd["ca"] == "/ca"
    assert meeting["remarks"] == [
        "--rdzv-conf read_timeout: no effect",
        "--rdzv-backend etcd-v2: etcd's v3 API is used, as with etcd",
    ]


def test_a_file_of_rules_that_is_not_there_is_refused(answered: Mapping[str, Any]) -> None:
    assert answered["cases"]["plain"]["rules"] == []
    problem = answered["cases"]["no rules"]
    assert problem["error"] == "ConfigError"
    assert "there is no file 'nowhere.toml'" in problem["text"]
