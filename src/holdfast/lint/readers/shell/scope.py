"""What the variables of a script hold at some point of it, as far as the text tells.

A branch, a loop, a function and a subshell each work on their own layer; what they changed is
folded back as certain, as uncertain, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.analysis.source.source import SourceSetting

GIVEN_FROM_OUTSIDE = re.compile(
    r"^(?:\d+|[@*#?!$-]|(?:SLURM|PBS|LSB|LSF|SGE|OMPI|PMI|PMIX|MPI|FLUX|KUBERNETES|MLP|ARNOLD|VC|AWS"
    r"|AZ|AZUREML|SM|PET|JSM|COBALT|RAY|JOB)_\w+|RANDOM|HOSTNAME|HOME|USER|PWD|SECONDS|UID|PPID"
    r"|(?:LOCAL_|NODE_|GROUP_|MACHINE_)?(?:RANK|WORLD_SIZE)|NNODES|NUM_NODES|NUM_MACHINES|N_NODES"
    r"|NODE_COUNT|NODES|WORKER_\w+|(?:MASTER|MAIN|HEAD|RDZV)_\w*(?:ADDR|ADDRESS|IP|HOST|NODE|ID)\w*"
    r"|NODE_?ID|NODE_?NUM)$"
)
"""which process this is: a default for these is only for the case where they are not set"""

EXPORTS_KEPT = 500
"""of each command; more than any launch script has, and a bound on hostile ones"""


class WordPiece(NamedTuple):
    """A stretch of a word: literal text, or an expansion."""

    text: str
    known: bool
    at: int
    """byte of the ground"""
    exact: bool = True
    """the text is there as it is, byte by byte"""
    splits: bool = False
    """an expansion outside quotes: its blanks separate words"""


Part = WordPiece | None
"""None: here one word ends and the next begins ("${ARGS[@]}")"""


class ShellVariable(msgspec.Struct, frozen=True, kw_only=True):
    elements: tuple[tuple[WordPiece, ...], ...]
    """of an array; one element for a plain variable"""
    array: bool = False
    sure: bool = True
    """False: some branch gave it another value"""
    setting: SourceSetting
    indexes: tuple[int, ...]
    """in the settings of the reading: all assignments it may have come from"""
    exported: bool = False

    @property
    def known(self) -> bool:
        return self.sure and all(atom.known for atoms in self.elements for atom in atoms)

    @property
    def text(self) -> str:
        return "".join(atom.text for atom in self.elements[0]) if self.elements else ""


class ShellScope:
    """One layer over its parent; None marks what was unset."""

    def __init__(
        self, parent: ShellScope | None = None, doubting: Collection[str] = frozenset()
    ) -> None:
        self.parent = parent
        self.doubting = doubting
        self.own: dict[str, ShellVariable | None] = {}
        self.passed_on: dict[str, SourceSetting | None] = {}
        self.promised: set[str] = parent.promised if parent else set()
        """`export NAME` before it has a value"""
        self.local: set[str] = set()
        """what a function keeps to itself"""
        self.exporting: bool = parent.exporting if parent else False
        """`set -a`"""
        self.sourced: bool = parent.sourced if parent else False
        """another file was read into this shell: it may have set anything"""

    def layer(self, doubting: Collection[str] = frozenset()) -> ShellScope:
        """`doubting`: names assigned out of sight, in a later round of a loop or after a function;
        inside the layer they are sure only once it has set them itself."""
        return ShellScope(self, doubting)

    def _layers(self) -> Iterator[ShellScope]:
        scope: ShellScope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def get(self, name: str) -> ShellVariable | None:
        doubtful = False
        for layer in self._layers():
            if name in layer.own:
                held = layer.own[name]
                return unsure(held) if doubtful and held is not None else held
            doubtful = doubtful or name in layer.doubting
        return None

    def was_unset(self, name: str) -> bool:
        return any(name in layer.own for layer in self._layers()) and self.get(name) is None

    def set(self, name: str, variable: ShellVariable) -> None:
        self.own[name] = variable
        self.passed_on.pop(name, None)  # the last one set comes last
        exported = msgspec.structs.replace(variable.setting, exported=True)
        self.passed_on[name] = exported if variable.exported else None

    def unset(self, name: str) -> None:
        self.own[name] = None
        self.passed_on[name] = None

    def exports(self) -> tuple[SourceSetting, ...]:
        """What a program started now finds in its environment, the newest last."""
        seen: set[str] = set()
        found: list[SourceSetting] = []
        for layer in self._layers():
            for name in reversed(layer.passed_on):
                setting = layer.passed_on[name]
                if name not in seen and setting is not None:
                    found.append(setting)
                seen.add(name)
                if len(seen) > EXPORTS_KEPT:
                    return tuple(reversed(found))
        return tuple(reversed(found))

    # --- folding layers back ------------------------------------------------------------------

    def changes(self) -> dict[str, ShellVariable | None]:
        """What a call of this function leaves behind."""
        return {name: held for name, held in self.own.items() if name not in self.local}

    def apply(self, changes: dict[str, ShellVariable | None]) -> None:
        """This happened for certain."""
        for name, variable in changes.items():
            if variable is None:
                self.unset(name)
            else:
                self.set(name, variable)

    def join(self, branches: list[ShellScope], *, one_is_taken: bool) -> None:
        """One of these branches happened, or (unless one is always taken) none of them."""
        self.sourced = self.sourced or any(branch.sourced for branch in branches)
        for name in {name: None for branch in branches for name in branch.own}:
            ends = [branch.get(name) for branch in branches]
            if not one_is_taken:
                ends.append(self.get(name))
            self._settle(name, ends)

    def _settle(self, name: str, ends: list[ShellVariable | None]) -> None:
        set_ones = [end for end in ends if end is not None]
        if not set_ones:
            self.unset(name)
            return
        last = set_ones[-1]
        indexes = tuple(dict.fromkeys(i for end in set_ones for i in end.indexes))[:16]
        same = len(set_ones) == len(ends) and all(_same(last, one) for one in set_ones)
        settled = last if same else unsure(last)
        exported = any(one.exported for one in set_ones)
        self.set(name, msgspec.structs.replace(settled, indexes=indexes, exported=exported))


def _same(one: ShellVariable, other: ShellVariable) -> bool:
    def texts(variable: ShellVariable) -> list[str]:
        return ["".join(atom.text for atom in atoms) for atoms in variable.elements]

    return one.known and other.known and texts(one) == texts(other)


def unsure(variable: ShellVariable) -> ShellVariable:
    setting = msgspec.structs.replace(variable.setting, known=False)
    return msgspec.structs.replace(variable, sure=False, setting=setting)


def environment(settings: Iterable[SourceSetting], outer: ShellScope, at: int) -> ShellScope:
    """What another shell finds when it is started with these: them, and no other variable."""
    scope = ShellScope()
    for setting in settings:
        held = outer.get(setting.name)
        atom = WordPiece(setting.value, known=setting.known, at=at, exact=False)
        elements = held.elements if held and held.text == setting.value else ((atom,),)
        variable = ShellVariable(
            elements=elements, sure=setting.known, setting=setting, indexes=(), exported=True
        )
        scope.set(setting.name, variable)
    return scope
