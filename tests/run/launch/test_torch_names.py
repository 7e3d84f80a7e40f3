"""What `run` needs of torch's inside: present, or one sentence before anything starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

from holdfast.errors import EnvironmentFailure
from holdfast.run.launch import flags, torch_names
from holdfast.run.launch.torch_names import TorchName


def test_this_torch_has_all_that_is_needed() -> None:
    assert torch_names.missing(torch_names.ESSENTIAL) == []
    gone = torch_names.missing(torch_names.OPTIONAL)
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    too_old = [tuple(map(int, name.since.split("."))) > version for name in gone if name.since]
    assert all(too_old)
    assert len(too_old) == len(gone)


class Code:
    def __init__(self) -> None:
        self.field = 1


MODULE: Any = SimpleNamespace(there=1, Code=Code, names=lambda: ["listed"])


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("there", True),
        ("gone", False),
        ("Code.__init__", True),
        ("Code.method", False),
        ("Code.__init__:field", True),
        ("Code.__init__:other", False),
        ("names()listed", True),
        ("names()unlisted", False),
        ("gone()listed", False),
    ],
)
def test_a_name_is_looked_up(name: str, exists: bool) -> None:
    asked = TorchName("a.module", name, "to test")
    assert torch_names.missing([asked], load=lambda _: MODULE) == ([] if exists else [asked])


def test_a_module_that_is_gone_is_missing() -> None:
    asked = TorchName("torch.no_such_module", "name", "to test")
    assert torch_names.missing([asked]) == [asked]


def test_a_renamed_method_of_the_agent_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the job would run as under torchrun, and nobody would watch it."""
    monkeypatch.delattr(SimpleElasticAgent, "_shutdown")
    with pytest.raises(EnvironmentFailure) as problem:
        flags.parse(["train.py"])
    assert problem.value.sentence == (
        f"torch {torch.__version__} has no torch.distributed.elastic.agent.server.api."
        "SimpleElasticAgent._shutdown, which holdfast run needs to end the ranks: "
        "it supports torch 2.8 to 2.15"
    )
    assert "torchrun" in problem.value.hint


def test_a_parser_that_is_gone_is_the_same_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torchrun, "get_args_parser")
    with pytest.raises(EnvironmentFailure, match="which holdfast run needs to read torchrun's"):
        flags.parse(["train.py"])


def test_what_cannot_be_seen_is_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.8: the job runs, and the user knows what a verdict will lack."""
    monkeypatch.setattr("torch._C._distributed_c10d._get_handler_names", lambda: ["ping"])
    told = f"with torch {torch.__version__} positions of Gloo collectives cannot be seen: needs"
    assert flags.parse(["train.py"]).remarks == (f"{told} torch 2.10",)
