"""What a source tells about a setting: how many machines, started by whom, how to be rid of it."""

from __future__ import annotations

import pytest

from holdfast.analysis.machine import Setting
from holdfast.analysis.source.source import Source
from holdfast.analysis.variables import in_source
from holdfast.fault import Fault
from tests.analysis.source.made_sources import python, shell

FAULT = Fault(code="HOLD599", slug="made-up")


def machines(source: Source) -> int | None:
    (setting,) = in_source.readable(source, "NCCL_DEBUG")
    return in_source.machines(source, setting)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("export NCCL_DEBUG=INFO", None),
        ("export NCCL_DEBUG=INFO\npython train.py", None),
        ("export NCCL_DEBUG=INFO\ntorchrun --nnodes=$N train.py", None),
        ("export NCCL_DEBUG=INFO\ntorchrun --nnodes=1:4 train.py", 4),
        ("#!/bin/sh\n#SBATCH -N 3\nexport NCCL_DEBUG=INFO\nsrun python train.py", 3),
        ("export NCCL_DEBUG=INFO\nmpirun -np 8 -H a:4,b:4 python train.py", 2),
        ("mpirun -np 8 -x NCCL_DEBUG=INFO -H a:4,b:4 python train.py", 2),
        ("srun -N 2 --export=ALL,NCCL_DEBUG=INFO python train.py", 2),
        ("NCCL_DEBUG=INFO torchrun --nnodes=1 a.py\ntorchrun --nnodes=2 b.py", 1),
        ("torchrun --nnodes=2 b.py\nNCCL_DEBUG=INFO torchrun --nnodes=1 a.py", 1),
    ],
)
def test_how_many_machines(text: str, count: int | None) -> None:
    assert machines(shell(text)) == count


def test_a_script_runs_where_its_launch_says() -> None:
    (launch,) = shell("torchrun --nnodes=2 train.py").launches
    text = 'import os\nos.environ["NCCL_DEBUG"] = "INFO"'
    assert machines(python(text, started_by=(launch,))) == 2


def test_its_own_line_is_no_evidence_but_the_other_one_is() -> None:
    source = shell("export A=1\nexport B=2")
    quotes = [
        Setting(name="A", value="1", origin="run.sh:1").evidence,
        Setting(name="B", value="2", origin="run.sh:2").evidence,
    ]
    (environment,) = in_source.environments(source)
    placed = environment.placed(FAULT.note("seen", reason="why", evidence=quotes))
    assert placed.place == source.settings[1].place
    assert [e.quote for e in placed.evidence] == ["A=1"]


def test_words_for_the_environment_and_for_a_line() -> None:
    here = Setting(name="A", value="^x", origin="environment")
    line = Setting(name="A", value="1", origin="run.sh:3")
    assert in_source.without(here) == "`unset A`"
    assert in_source.without(line) == "remove A"
    assert in_source.put(here, "B", "^x") == "`export B='^x'`"
    assert in_source.put(line, "B", "1") == "`B=1`"
    assert in_source.renamed(here, "B") == "`unset A; export B='^x'`"
    assert in_source.renamed(line, "B") == "write `B=1`"
