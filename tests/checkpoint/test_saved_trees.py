"""The optimizer of a sharded checkpoint: by names, from the trees of whatever ranks had them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint import tree
from holdfast.checkpoint.rank_files import RankFiles
from holdfast.checkpoint.saved_trees import SavedTrees
from holdfast.checkpoint.staging import tree_file
from holdfast.errors import ConfigError


def saved(folder: Path, rank: int, *groups: tuple[float, list[str]]) -> RankFiles:
    """What a rank wrote: groups of a learning rate and the names of parameters."""
    nodes = [{"dict": {"lr": lr, "params": names}} for lr, names in groups]
    state = {name: f"of {name}" for _, names in groups for name in names}
    document: dict[str, Any] = {"sharded": {"optimizer": {"groups": nodes, "state": state}}}
    (folder / tree_file(rank)).write_bytes(tree.to_json(document))
    return RankFiles(str(folder), rank)


def found(trees: SavedTrees, names: list[list[str]]) -> tuple[list[float], dict[str, str]]:
    optimizer = trees.optimizer(("optimizer",), names)
    wanted = {name for group in names for name in group}
    return (
        [group["dict"].get("lr") for group, _ in optimizer.groups],
        {name: node for name, (node, _) in optimizer.state.items() if name in wanted},
    )


def test_numbers_stand_for_names_where_an_evaluation_had_hidden_them(tmp_path: Path) -> None:
    own = saved(tmp_path, 0, (0.1, ["group 0.0", "w"]), (0.2, ["group 1.0"]))
    state = {"a": "of group 0.0", "w": "of w", "b": "of group 1.0"}
    assert found(SavedTrees(own, list), [["a", "w"], ["b"]]) == ([0.1, 0.2], state)


def test_ranks_of_another_layout_take_each_group_from_where_it_is(tmp_path: Path) -> None:
    stages = [saved(tmp_path, 0, (0.1, ["a"]), (0.2, ["b"])), saved(tmp_path, 1, (0.1, ["c"]))]
    trees = SavedTrees(stages[0], lambda: stages)
    state = {name: f"of {name}" for name in "abc"}
    assert found(trees, [["a", "c"], ["b"]]) == ([0.1, 0.2], state)


@pytest.mark.parametrize("names", [[["a", "b"]], [["a", "d"]], [["group 0.0"], ["b"]]])
def test_other_groups_are_refused(tmp_path: Path, names: list[list[str]]) -> None:
    """Of parameters that had other options, or that were not there."""
    own = saved(tmp_path, 0, (0.1, ["a"]), (0.2, ["b"]))
    with pytest.raises(ConfigError, match="hold other parameters"):
        SavedTrees(own, list).optimizer(("optimizer",), names)
