"""Which differences matter, and what accepts them."""

from __future__ import annotations

import pytest

from holdfast.analysis.checkpoints.manifest import SCHEMA, Manifest
from holdfast.checkpoint import compare
from holdfast.checkpoint.compare import RunningJob
from holdfast.checkpoint.config_texts import PER_RANK
from holdfast.errors import ConfigError


def saved(**changes: object) -> Manifest:
    fields: dict[str, object] = {
        "schema": SCHEMA, "step": 5, "epoch": 0, "world_size": 4, "kind": "plain",
        "saved_at": 0.0, "files": (), "structure": "abc", "config": {"lr": "0.1"},
        "versions": {}, "data": "unknown", "run": "",
    }  # fmt: skip
    return Manifest(**(fields | changes))  # type: ignore[arg-type]


def running(**changes: object) -> RunningJob:
    fields: dict[str, object] = {
        "structure": "abc", "config": {"lr": "0.1"}, "world_size": 4, "kind": "plain",
    }  # fmt: skip
    return RunningJob(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("then", "now", "slugs", "choices"),
    [
        ({}, {}, [], []),
        ({}, {"structure": "xyz"}, ["config-changed"], [""]),
        ({}, {"kind": "sharded"}, ["config-changed"], [""]),
        ({}, {"config": {"lr": "0.2"}}, ["config-changed"], ["config"]),
        ({}, {"config": {}}, ["config-changed"], ["config"]),
        ({}, {"world_size": 2}, ["world-size-mismatch"], ["world-size"]),
        ({"data": "per-rank"}, {"world_size": 2}, ["world-size-mismatch"], ["world-size"]),
        ({"data": "global"}, {"world_size": 2}, [], []),
        ({}, {"config": {}, "world_size": 2}, ["config-changed", "world-size-mismatch"],
         ["config", "world-size"]),
    ],
)  # fmt: skip
def test_differences(
    then: dict[str, object], now: dict[str, object], slugs: list[str], choices: list[str]
) -> None:
    found = compare.differences(saved(**then), running(**now))
    assert [difference.slug for difference in found] == slugs
    assert [difference.accept for difference in found] == choices
    compare.refuse("p", [d for d in found if d.accept], set(choices))
    if found:
        with pytest.raises(ConfigError, match=slugs[0]):
            compare.refuse("p", found, ())
    if "" in choices:
        with pytest.raises(ConfigError):
            compare.refuse("p", found, compare.ACCEPTABLE)


def test_many_keys_are_named_in_part() -> None:
    many = {str(number): "x" for number in range(20)}
    found = compare.differences(saved(config=many), running(config={}))
    assert "and 14 more" in found[0].sentence


def test_what_one_side_does_not_compare_is_not_compared() -> None:
    """A job of one rank sees no difference between ranks; one of several does."""
    then, now = {"lr": "0.1", "local_rank": "0"}, {"lr": "0.1", "local_rank": PER_RANK}
    for one, other in ((then, now), (now, then), (now, {"lr": "0.1"}), ({"lr": "0.1"}, now)):
        assert compare.differences(saved(config=one), running(config=other)) == []
    changed = now | {"lr": "0.2"}
    assert len(compare.differences(saved(config=then), running(config=changed))) == 1


def test_what_is_accepted_comes_from_the_script_and_the_environment() -> None:
    said = compare.accepted({"config"}, {"HOLDFAST_ACCEPT": "world-size, "})
    assert said == {"config", "world-size"}
    assert compare.accepted("config", {}) == {"config"}
    with pytest.raises(
        ConfigError,
        match="unknown value 'everything' \\(choose from config, world-size, data, fresh, ranks\\)",
    ):
        compare.accepted({"everything"}, {})
