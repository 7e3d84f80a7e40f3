"""What a script saves with torch.save, where to and how often, and what it loads."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from holdfast.analysis.source.checkpoints.save_paths import same_every_time, spelled
from holdfast.analysis.source.program import (
    Call,
    Function,
    Program,
    constant,
    dotted,
    once_per_program,
)
from holdfast.analysis.source.python.flow import callers, repeated
from holdfast.analysis.source.python.name_values import names

SAVERS = ("torch.save", "torch.serialization.save")
LOADERS = ("torch.load", "torch.serialization.load")
RENAMES = ("os.replace", "os.rename", "os.renames", "shutil.move", "os.link")
COPIES = ("shutil.copy", "shutil.copyfile", "shutil.copy2", "os.link")
RESUMES = re.compile(r"(?i)check_?point|ckpt|resume|(?:^|[^a-z])last|latest|snapshot")
"""words in the name of a file that is meant for a resume"""

EXPORTS = re.compile(r"(?i)best|final|export|release|weights|pretrain|ema|top_?\d|swa")
"""words of a file that is a result"""

TEMPORARY = re.compile(r"(?i)te?mp|partial|incomplete|\.new\b|bytesio|buffer|stream|dev/null")


class SaveCall(NamedTuple):
    """One torch.save that writes a file."""

    call: Call
    what: ast.expr
    """the object, names followed"""
    path: ast.expr
    """the path, `with open(path) as f` seen through"""
    written: str
    """the path as code, names followed as far as they go"""
    fixed: bool | None
    """the same file every time; None when that cannot be told"""
    repeated: bool
    """it runs more than once: in a loop, or in a function that a loop calls"""
    loaded: bool
    """this file loads what it saves there"""


@once_per_program
def save_calls(program: Program) -> tuple[SaveCall, ...]:
    """Every torch.save onto a file, in order of the text."""
    found = []
    for call in program.called(*SAVERS):
        what, path = call.argument(0, "obj"), call.argument(1, "f")
        path = _file(program, path) if path is not None else None
        if what is None or path is None:
            continue
        written = spelled(program, path)
        if TEMPORARY.search(written) or TEMPORARY.search(ast.unparse(path)):
            continue
        found.append(
            SaveCall(
                call,
                names(program).follow(what),
                path,
                written,
                same_every_time(program, path),
                repeated(program, call.node),
                _loads(program, path),
            )
        )
    return tuple(found)


def _file(program: Program, node: ast.expr) -> ast.expr | None:
    """The path that a save writes to; None for buffers."""
    made = names(program).follow(node)
    if isinstance(made, ast.Call):
        name = program.name_of(made.func)
        if name == "builtins.open" and made.args:
            return made.args[0]
        if isinstance(made.func, ast.Attribute) and made.func.attr == "open":
            return made.func.value if not name else None
        if name.startswith(("io.", "tempfile.")):
            return None
    return node


def _loads(program: Program, path: ast.expr) -> bool:
    """torch.load of the same expression, or of the same literal path."""
    wanted = _same(program, path)
    for call in program.called(*LOADERS):
        given = call.argument(0, "f")
        if given is not None and _same(program, given) & wanted:
            return True
    return False


def _same(program: Program, node: ast.expr) -> set[str]:
    return {ast.unparse(node), ast.unparse(names(program).follow(node))}


def keeps_the_old(program: Program, save: SaveCall) -> bool:
    """Something in the same function moves files into place, or copies the old one away first."""
    function = program.function_of(save.call.node) or program.tree
    for call in program.calls_in(function):
        renames = call.name in RENAMES or (
            isinstance(call.node.func, ast.Attribute)
            and not call.name
            and (call.node.func.attr == "rename" or _path_replace(call))
        )
        before = call.node.lineno < save.call.node.lineno
        if renames or (call.name in COPIES and before):
            return True
    return False


def _path_replace(call: Call) -> bool:
    """Path.replace(target) has one argument; str.replace has two."""
    function = call.node.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "replace"
        and (len(call.node.args) == 1 and not call.node.keywords)
    )


# --- what is in it ------------------------------------------------------------------------------


class SavedContent(NamedTuple):
    """What a saved dict is seen to hold."""

    keys: frozenset[str]
    states: frozenset[str]
    """names whose `state_dict()` is in it"""


def saved_content(program: Program, save: SaveCall) -> SavedContent | None:
    """None where part of it cannot be seen."""
    pairs = _pairs(program, save.what)
    if pairs is None:
        return None
    given = save.call.argument(0, "obj")
    if isinstance(given, ast.Name):
        later = _added_later(program, given)
        if later is None:
            return None
        pairs += later
    states = {
        dotted(part.func.value)
        for _, value in pairs
        for part in ast.walk(value)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)
        if part.func.attr == "state_dict"
    }
    return SavedContent(frozenset(key for key, _ in pairs), frozenset(states))


def _pairs(program: Program, node: ast.expr) -> list[tuple[str, ast.expr]] | None:
    if isinstance(node, ast.Dict):
        found = []
        for key, value in zip(node.keys, node.values, strict=True):
            word = constant(key)
            name = word if isinstance(word, str) else dotted(key) if key is not None else ""
            if not name:
                return None
            found.append((name, value))
        return found
    if isinstance(node, ast.Call) and program.name_of(node.func) == "builtins.dict":
        if node.args or any(k.arg is None for k in node.keywords):
            return None
        return [(k.arg or "", k.value) for k in node.keywords]
    return None


def _added_later(program: Program, name: ast.Name) -> list[tuple[str, ast.expr]] | None:
    """`state["rng"] = …` in the same function; None when it is handed to others to fill in."""
    scope: Function | ast.Module = program.function_of(name) or program.tree
    found: list[tuple[str, ast.expr]] = []
    for assign in program.assigns:
        for target in assign.targets if isinstance(assign, ast.Assign) else ():
            if isinstance(target, ast.Subscript) and dotted(target.value) == name.id:
                word = constant(target.slice)
                if not isinstance(word, str) or assign.value is None:
                    return None
                found.append((word, assign.value))
    for call in program.calls_in(scope):
        handed = [*call.node.args, *(k.value for k in call.node.keywords)]
        passed = any(isinstance(a, ast.Name) and a.id == name.id for a in handed)
        if call.written == f"{name.id}.update" or (passed and call.name not in SAVERS):
            return None
    return found


def save_functions(program: Program, save: SaveCall) -> list[str]:
    """The name of the function it is in, and of those that call that one."""
    function = program.function_of(save.call.node)
    if function is None:
        return []
    above = [program.function_of(call.node) for call in callers(program, function)]
    return [function.name, *(one.name for one in above if one is not None)]
