"""Which settings of a source meet in the environment of one process."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Iterable, Iterator

from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source, SourceSetting

OWN = ("prefix", "docker -e", "mpirun -x", "srun --export", "compose")
"""given to one command or container only"""

Path = tuple[tuple[int, int], ...]


def groups(source: Source) -> list[list[SourceSetting]]:
    """Groups of settings, each with the last value of every name, in order of the text.

    One for what the whole source leaves behind, one for each command that is given settings of
    its own or starts a job. Settings that exclude each other are never in one group.
    """
    found: dict[tuple[SourceSetting, ...], None] = {}
    for settings in _sequences(source):
        for compatible in _apart(settings, source):
            found[tuple(_last(compatible))] = None
    return [list(group) for group in found if group]


def _sequences(source: Source) -> Iterator[list[SourceSetting]]:
    yield [s for s in source.settings if s.by not in OWN and s.exported]
    yield from (list(launch.settings) for launch in source.launches)
    yield from (list(c.settings) for c in source.commands if any(s.by in OWN for s in c.settings))
    yield from _of_containers(source)


def _of_containers(source: Source) -> Iterator[list[SourceSetting]]:
    own = [s for s in source.settings if s.by in ("docker -e", "compose")]
    starts = sorted(container.place for container in source.containers)
    shares: dict[int, list[SourceSetting]] = {}
    for setting in own:
        shares.setdefault(bisect.bisect_right(starts, setting.place), []).append(setting)
    yield from shares.values()


def _last(settings: Iterable[SourceSetting]) -> list[SourceSetting]:
    by_name: dict[str, SourceSetting] = {}
    for setting in settings:
        by_name.pop(setting.name, None)
        if setting.by != "unset":
            by_name[setting.name] = setting
    return list(by_name.values())


def _apart(settings: list[SourceSetting], source: Source) -> Iterator[list[SourceSetting]]:
    """For every path on which a setting is made: what certainly is set there too."""
    paths = [_path(s, source) for s in settings]
    for path in dict.fromkeys(paths):
        here = set(path)
        yield [s for s, other in zip(settings, paths, strict=True) if here.issuperset(other)]


def _path(setting: SourceSetting, source: Source) -> Path:
    if source.program is None:
        return setting.arms
    return tuple(_arms(setting.place.line, source.program))


def _arms(line: int, program: Program) -> Iterator[tuple[int, int]]:
    """A function counts as an arm too: two of them may serve two programs."""
    statement = next((s for s in _statements(program) if s.lineno <= line <= _end(s)), None)
    if statement is None:
        return
    below: ast.AST = statement
    for node in program.above(statement):
        if isinstance(node, ast.If):
            yield node.lineno, int(below in node.orelse)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, 0
        elif isinstance(node, ast.match_case):
            yield node.pattern.lineno, 0
        below = node


def _statements(
    program: Program,
) -> Iterator[ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Call]:
    """What can set a variable: `os.environ[…] = …` and calls."""
    yield from program.assigns
    yield from (call.node for call in program.calls)


def _end(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno
