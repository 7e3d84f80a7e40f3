"""`[tool.holdfast]` of the nearest pyproject.toml."""

from __future__ import annotations

import fnmatch
import os
from typing import Any

import msgspec

from holdfast.errors import ConfigError
from holdfast.system import pyproject

SECTION = "[tool.holdfast]"


class LintConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a project wants of lint; `file` is '' where it says nothing."""

    file: str = ""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    """patterns of paths, or names of files and folders"""
    torch: str = ""
    per_file_ignores: dict[str, tuple[str, ...]] = {}

    def excludes(self, path: str) -> bool:
        return bool(self.exclude) and self._matches(path, self.exclude)

    def ignored_in(self, path: str) -> tuple[str, ...]:
        """Names of faults that are not reported in this file."""
        return tuple(
            name
            for pattern, names in self.per_file_ignores.items()
            if self._matches(path, (pattern,))
            for name in names
        )

    def _matches(self, path: str, patterns: tuple[str, ...]) -> bool:
        """Like .gitignore, without its subtleties: a name matches anywhere, a path from here."""
        parts = os.path.relpath(path, os.path.dirname(self.file)).split(os.sep)
        beginnings = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return any(
            fnmatch.fnmatchcase(candidate, spelling)
            for pattern in patterns
            for spelling in _spellings(pattern)
            for candidate in (*beginnings, *parts)
        )


def _spellings(pattern: str) -> tuple[str, ...]:
    """`./build/` is build; `**/build` also means the one in this folder."""
    plain = pattern.removeprefix("./").rstrip("/")
    return (plain, plain.removeprefix("**/")) if plain.startswith("**/") else (plain,)


def find(start: str) -> LintConfig:
    """From the nearest pyproject.toml above with a table for holdfast."""
    found = pyproject.nearest(start)
    return parse(found.table, found.file) if found else LintConfig()


def parse(table: Any, file: str) -> LintConfig:
    """Of [tool.holdfast], or [tool.holdfast.lint], which takes precedence. An unknown key is an
    error: a typo would go unnoticed. Rules of the user's own are for run and explain."""
    if not isinstance(table, dict) or not isinstance(table.get("lint", {}), dict):
        raise ConfigError(f"{file}: holdfast's settings must be a table", hint=f"write {SECTION}")
    values = {name: value for name, value in table.items() if name not in ("lint", "rules")}
    values |= table.get("lint", {})
    known = {"select", "ignore", "exclude", "torch", "per-file-ignores"}
    if unknown_keys := sorted(set(values) - known):
        raise ConfigError(
            f"{file}: {SECTION} has no key {unknown_keys[0]!r}",
            hint=f"choose from {', '.join(sorted(known))}",
        )
    fields = {name.replace("-", "_"): value for name, value in values.items()}
    try:
        return msgspec.convert({"file": os.path.abspath(file), **fields}, LintConfig)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{file}: {SECTION}: {problem}") from problem
