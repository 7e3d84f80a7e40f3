"""Where the user's own rules are: a file that was named, or the nearest pyproject.toml."""

from __future__ import annotations

import os
from typing import NamedTuple

from holdfast.analysis.rules.rule import NO_RULES, RuleSet, parse
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.system import pyproject

HELP = (
    "your own rules for what the ranks print: a TOML file with [rules.NAME] tables (default: "
    "[tool.holdfast.rules.NAME] of the nearest pyproject.toml)"
)


class LoadedRules(NamedTuple):
    rules: RuleSet
    remark: str = ""
    """'' or why those of pyproject.toml could not be read"""


def load(named: str | None, folder: str) -> LoadedRules:
    """`named`: as typed behind --rules. A file that was not named does not keep a job from
    starting where it is no TOML; a rule in it that makes no sense does."""
    if named is not None:
        return LoadedRules(_of_file(named))
    try:
        found = pyproject.nearest(folder)
    except EnvironmentFailure as problem:
        return LoadedRules(NO_RULES, f"no rules of your own are used: {problem.sentence}")
    table = found.table.get("rules") if found and isinstance(found.table, dict) else None
    return LoadedRules(parse(table, found.file) if found and table is not None else NO_RULES)


def _of_file(path: str) -> RuleSet:
    if not os.path.isfile(path):
        raise ConfigError(f"--rules: there is no file {path!r}")
    try:
        document = pyproject.read(path)
    except OSError as problem:
        raise ConfigError(f"--rules: {path} cannot be read: {problem.strerror}") from problem
    except EnvironmentFailure as problem:
        raise ConfigError(f"--rules: {problem.sentence}") from problem
    table = document.get("rules")
    tools = document.get("tool")
    own = tools.get("holdfast") if isinstance(tools, dict) else None
    if table is None and isinstance(own, dict):
        table = own.get("rules")
    if not table:
        raise ConfigError(
            f"--rules: {path} has no rules", hint="write [rules.NAME] with pattern and means below"
        )
    return parse(table, path)
