"""Flags beat the environment, the environment beats the default; nonsense is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.check.plan import Flags, make_plan
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ({}, {}, {"port": 29500, "port_origin": "default", "nproc": 1, "max_nodes": 1}),
        ({}, {"MASTER_PORT": "29600"}, {"port": 29600, "port_origin": "MASTER_PORT"}),
        ({}, {"PET_MASTER_PORT": "29601"}, {"port": 29601, "port_origin": "PET_MASTER_PORT"}),
        ({"port": 4}, {"MASTER_PORT": "29600"}, {"port": 4, "port_origin": "--port"}),
        ({"port": 0}, {}, {"port": 0, "port_named": True}),
        ({"nnodes": "2"}, {}, {"min_nodes": 2, "max_nodes": 2, "multi_node": True}),
        ({"nnodes": "1:4"}, {}, {"min_nodes": 1, "max_nodes": 4, "multi_node": True}),
        ({}, {"PET_NNODES": "3"}, {"max_nodes": 3}),
        ({"nproc_per_node": 8}, {"PET_NPROC_PER_NODE": "2"}, {"nproc": 8}),
        ({}, {"PET_NPROC_PER_NODE": "2"}, {"nproc": 2}),
        ({}, {"PET_NPROC_PER_NODE": "gpu"}, {"nproc": 1}),
        ({}, {"LOCAL_WORLD_SIZE": "6"}, {"nproc": 6}),
        ({}, {"MASTER_ADDR": "node-a"}, {"master_addr": "node-a", "master_origin": "MASTER_ADDR"}),
        ({"master_addr": "b"}, {"MASTER_ADDR": "a"}, {"master_addr": "b"}),
        ({}, {"NODE_RANK": "1"}, {"node_rank": 1}),
        ({}, {"GROUP_RANK": "0"}, {"node_rank": 0}),
        # as `holdfast run` asks before it starts
        (
            {"port": 7, "port_flag": "--master-port", "log_folder": "/r"},
            {},
            {"port_origin": "--master-port", "port_named": True, "log_folder": "/r"},
        ),
        ({}, {}, {"log_folder": "runs"}),
    ],
)
def test_what_is_in_force(
    flags: dict[str, Any], environment: dict[str, str], expected: dict[str, Any]
) -> None:
    plan = make_plan(Flags(**flags), environment, accelerators=0)
    assert {name: getattr(plan, name) for name in expected} == expected


def test_unnamed_a_rank_per_gpu_is_expected() -> None:
    assert make_plan(Flags(), {}, accelerators=8).nproc == 8


@pytest.mark.parametrize(
    ("flags", "environment", "sentence"),
    [
        ({"nnodes": "²"}, {}, "must be a number or a range"),
        ({"nnodes": "9" * 5000}, {}, "must be a number or a range"),
        ({}, {"MASTER_PORT": "9" * 5000}, "must be a number"),
        ({"checkpoint_folders": ("",)}, {}, "--ckpt names no folder"),
        ({"port": 70000}, {}, "--port must be from 0 to 65535, got 70000"),
        ({"port": -1}, {}, "from 0 to 65535, got -1"),
        (
            {},
            {"MASTER_PORT": "auto"},
            "MASTER_PORT in the environment must be a number",
        ),
        ({"nnodes": "two"}, {}, "--nnodes must be a number or a range such as 2:4, got 'two'"),
        ({"nnodes": "4:2"}, {}, "with 1 <= MIN <= MAX"),
        ({"nnodes": "0"}, {}, "with 1 <= MIN <= MAX"),
        ({"nproc_per_node": 0}, {}, "must be >= 1, got 0"),
    ],
)
def test_nonsense_is_one_sentence(
    flags: dict[str, Any], environment: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        make_plan(Flags(**flags), environment, accelerators=0)
    assert sentence in refusal.value.sentence


NAMES = ["MASTER_PORT", "MASTER_ADDR", "PET_NNODES", "PET_NPROC_PER_NODE", "NODE_RANK",
         "LOCAL_WORLD_SIZE", "PET_MASTER_PORT"]  # fmt: skip


VALUES = st.text(max_size=12) | st.text("0123456789²٣:", max_size=12)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_any_environment_gives_a_plan_or_a_sentence(environment: dict[str, str]) -> None:
    plan = None
    with contextlib.suppress(ConfigError):
        plan = make_plan(Flags(), environment, accelerators=0)
    assert plan is None or (0 <= plan.port <= 65535 and plan.nproc >= 1)
