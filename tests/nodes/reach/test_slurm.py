"""A real Slurm of three nodes: what its steps, batch scripts and shells say about the nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.holdfast_command import wait_until
from tests.drill.lab.fixture import lab_or_skip
from tests.drill.lab.slurm import Slurm
from tests.places import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("slurm")]

SAY = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.nodes.reach.say_plan"]

SRUN = ["srun", "--nodes=3", "--ntasks-per-node=2"]
CHECK = ["-m", "holdfast", "check", "--json", "--only", "peer-unreachable"]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with lab_or_skip() as lab:
        yield Slurm(lab, tmp_path_factory.mktemp("slurm"), nodes=3)


def said(slurm: Slurm, *command: str) -> list[dict[str, Any]]:
    done = slurm.run([*command, *SAY])
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(lines, key=lambda one: (one.get("index"), one.get("steps_aside")))


def test_one_process_a_node_of_several_tasks(slurm: Slurm) -> None:
    plans = said(slurm, *SRUN)
    assert len(plans) == 6
    aside = [plan for plan in plans if plan["steps_aside"]]
    here = [plan for plan in plans if not plan["steps_aside"]]
    assert [plan["index"] for plan in here] == [plan["index"] for plan in aside] == [0, 1, 2]
    assert [plan["own_name"] for plan in here] == ["n1", "n2", "n3"]
    assert [plan["nodename"] for plan in here] == ["n1", "n2", "n3"]
    assert [plan["role"] for plan in here] == ["COORDINATE", "JOIN", "JOIN"]
    assert [plan["rack"] for plan in here] == ["leaf-n1", "leaf-n2", "leaf-n3"]
    assert all(plan["nodes"] == 3 for plan in plans)
    assert all(plan["names"] == ["n1", "n2", "n3"] for plan in plans)
    assert all(plan["host"] == "n1" for plan in plans)
    assert all(plan["resolved"] == [slurm.nodes[0].address] for plan in plans)
    assert len({(plan["port"], plan["job"]) for plan in plans}) == 1


def test_a_step_on_some_nodes_of_an_allocation(slurm: Slurm, tmp_path: Path) -> None:
    """In a batch script: the script itself is on one node and hears how all would take part."""
    step = " ".join(["srun", "--nodes=2", "--nodelist=n2,n3", *SAY])
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{' '.join(SAY)}\n{step}\n")
    out = tmp_path / "out"
    # --wait would ask the controller at ever longer intervals
    done = slurm.run(["sbatch", "--nodes=3", "--exclusive", f"--output={out}", str(script)])
    assert done.returncode == 0, done.stderr
    wait_until(lambda: out.exists() and out.read_text().count("}\n") == 3, seconds=60)
    batch, *plans = [json.loads(line) for line in out.read_text().splitlines()]
    assert batch["alone"] == "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 holdfast check"
    plans.sort(key=lambda plan: str(plan["index"]))
    assert [(plan["index"], plan["own_name"], plan["nodename"]) for plan in plans] == [
        (0, "n2", "n2"),
        (1, "n3", "n3"),
    ]
    assert {plan["host"] for plan in plans} == {"n2"}


def test_one_node_is_alone(slurm: Slurm) -> None:
    (plan,) = said(slurm, "srun", "--nodes=1")
    assert plan["alone"] == ""


def test_srun_holdfast_check_looks_at_all_nodes(slurm: Slurm) -> None:
    """Two tasks a node, one of which takes part; a port that is filtered one way is named."""
    n1, n2, _ = slurm.nodes
    slurm.lab.link(n1, n2).drop(29500, to=n1)
    try:
        done = slurm.run(
            [*SRUN, sys.executable, *CHECK],
            HOLDFAST_TOKEN="a secret of sixteen letters or more",
        )
    finally:
        slurm.lab.restore()
    answer = json.loads(done.stdout)
    assert [(node["name"], node["rack"]) for node in answer["nodes"]] == [
        ("n1", "leaf-n1"),
        ("n2", "leaf-n2"),
        ("n3", "leaf-n3"),
    ]
    assert answer["absent"] == []
    assert [(path["from"], path["to"]) for path in answer["paths"] if path["state"] != "ok"] == [
        ("n2", "n1")
    ]
    assert done.returncode == 1
    assert done.stderr.count("one process a node takes part") == 3
    assert "token taken from HOLDFAST_TOKEN" in done.stderr
