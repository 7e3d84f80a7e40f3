"""The trees of a sharded checkpoint as one rank needs them: its own, or parts of several.

Ranks of a pipeline have other parameters each, and so have their trees. The same ranks again find
all in their own; ranks of another layout take what they need from one tree of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint.rank_files import RankFiles
from holdfast.checkpoint.tree import DamagedTreeError, Node
from holdfast.errors import ConfigError

Found = tuple[Node, RankFiles]
"""a node, and the files that its tensors are in"""


@dataclass(frozen=True)
class SavedOptimizer:
    groups: list[Found]
    """options of each group, `params` among them"""
    state: dict[str, Found]
    """by the name of the parameter"""


class SavedTrees:
    def __init__(self, own: RankFiles, elsewhere: Callable[[], list[RankFiles]]) -> None:
        self.own, self._elsewhere = own, elsewhere
        self._all: list[RankFiles] = []

    def has(self, *path: str) -> bool:
        return _at(self.own, path) is not None

    def node(self, *path: str) -> Node:
        return _at(self.own, path)

    def entries(
        self, path: tuple[str, ...], wanted: Iterable[str]
    ) -> tuple[dict[str, Found], Node]:
        """(name -> node, torch's metadata) of a module."""
        pairs, metadata = _module(self.own, path)
        found = {name: (node, self.own) for name, node in pairs}
        names = set(wanted)
        if found.keys() != names:
            for files in self._others():
                for name, node in _module(files, path)[0]:
                    found.setdefault(name, (node, files))
            if names <= found.keys():  # else torch says what is missing, and what is too much
                found = {name: found[name] for name in found if name in names}
        return found, metadata

    def optimizer(self, path: tuple[str, ...], names: list[list[str]]) -> SavedOptimizer:
        """For groups of these parameters."""
        groups, state = _optimizer(self.own, path)
        then = [_params(group) for group in groups]
        if then != names and _are_numbers(then, names):
            # An evaluation before the save hid their names from an earlier release.
            renamed = zip((n for g in then for n in g), (n for g in names for n in g), strict=True)
            new = dict(renamed)
            state = {new.get(name, name): node for name, node in state.items()}
            then = names
        if then == names:
            return SavedOptimizer(
                [(group, self.own) for group in groups],
                {name: (node, self.own) for name, node in state.items()},
            )
        return self._from_all(path, names)

    def _from_all(self, path: tuple[str, ...], names: list[list[str]]) -> SavedOptimizer:
        options: dict[str, Found] = {}
        state: dict[str, Found] = {}
        for files in [self.own, *self._others()]:
            groups, states = _optimizer(files, path)
            for group in groups:
                for name in _params(group):
                    options.setdefault(name, (group, files))
            for name, node in states.items():
                state.setdefault(name, (node, files))
        return SavedOptimizer([_common(mine, options, self.own) for mine in names], state)

    def _others(self) -> list[RankFiles]:
        if not self._all:
            self._all = self._elsewhere()
        return self._all


def _common(names: list[str], options: dict[str, Found], own: RankFiles) -> Found:
    """The options that all these parameters had."""
    try:
        found = [options[name] for name in names]
    except KeyError:
        raise _other_groups() from None
    if not found:
        return {"dict": {"params": []}}, own
    first = _without_params(found[0][0])
    if any(_without_params(group) != first for group, _ in found[1:]):
        raise _other_groups()
    return found[0]


def _other_groups() -> ConfigError:
    return ConfigError("the optimizer's groups hold other parameters than when it was saved")


def _are_numbers(then: list[list[str]], names: list[list[str]]) -> bool:
    """'group 0.0', 'group 0.1' …, as many as there are names."""
    numbered = [[f"group {g}.{i}" for i in range(len(mine))] for g, mine in enumerate(names)]
    return len(then) == len(names) and all(
        len(had) == len(mine)
        and all(name in either for name, *either in zip(had, mine, numbers, strict=True))
        for had, mine, numbers in zip(then, names, numbered, strict=True)
    )


def _at(files: RankFiles, path: tuple[str, ...]) -> Node:
    found = files.part("sharded")
    for key in path:
        found = found.get(key)
        if found is None:
            return None
    return found


def _module(files: RankFiles, path: tuple[str, ...]) -> tuple[list[Any], Node]:
    node = _at(files, path)
    if node is None:
        return [], None
    pairs, metadata = node["ordered"]
    return pairs, metadata


def _optimizer(files: RankFiles, path: tuple[str, ...]) -> tuple[list[Node], dict[str, Node]]:
    node = _at(files, path)
    return ([], {}) if node is None else (node["groups"], node["state"])


def _params(group: Node) -> list[str]:
    found = group["dict"]["params"]
    if not isinstance(found, list):
        raise DamagedTreeError("the saved state is damaged: a group without parameters")
    return found


def _without_params(group: Node) -> dict[str, Node]:
    return {
        key: value for key, value in group["dict"].items() if key not in ("params", "param_names")
    }
