"""A script starts processes while it is being imported.

What you see   `An attempt has been made to start a new process before the current process has
               finished its bootstrapping phase`, or the script's own start-up again in every child:
               tracebacks through multiprocessing/spawn.py and runpy.py into the top level of the
               script.
Why            A child started by 'spawn' or 'forkserver' is a fresh interpreter. It imports the
               main script to find the function it runs, and so executes every line at its top level
               again. If such a line starts processes, each child would start its own children;
               Python prevents that. CUDA requires 'spawn', and so do macOS and Windows.
How to be sure The last frames before multiprocessing's show a line of your script `in <module>`:
               that line runs on import.
Fix            Put what starts the work into a function and call it under
               `if __name__ == "__main__":`. Definitions and imports stay outside. A decorator that
               runs its function at once, or a notebook cell, has the same effect.
Known limits   From a log that is cut before its last lines, holdfast cannot tell this from an
               import that failed for another reason.
Sources        https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods
               python/cpython Lib/multiprocessing/spawn.py (_check_not_importing_main)
               https://docs.pytorch.org/docs/stable/notes/multiprocessing.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.source.processes.import_time import (
    ImportTimeStart,
    import_time_starts,
    second_choice,
)
from holdfast.analysis.source.processes.start_method import spawns
from holdfast.analysis.source.program import Program, cited
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD622",
    slug="missing-main-guard",
    related=("module-state-under-spawn", "fork-cuda", "python-exception"),
)

NEAR = 80
"""lines: a traceback is rarely longer"""

REFUSED = FAULT.log_pattern(
    "bootstrapping",
    r"attempt has been made to start a new process before"
    r"|has finished its bootstrapping phase"
    r"|you are not using fork to start your"
    r"|forgotten to use the proper idiom"
    r'|The "freeze_support\(\)" line can be omitted'
    r"|_check_not_importing_main",
    anchors=(
        "made to start a new process before",
        "finished its bootstrapping phase",
        "are not using fork to start",
        "forgotten to use the proper idiom",
        'The "freeze_support()" line',
        "_check_not_importing_main",
    ),
    example="        current process has finished its bootstrapping phase.",
)
REIMPORT = FAULT.log_pattern(
    "re-import",
    r"in _fixup_main_from_(?:path|name)",
    anchors="_fixup_main_from_",
    example='  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 297, in '
    "_fixup_main_from_path",
    role=Role.CONTEXT,
)
TOP_LEVEL = FAULT.log_pattern(
    "top-level",
    r'(?:^|(?<="))(?P<file>[^"\s<][^"]{0,300})", line (?P<line>\d{1,7}), in <(?:module'
    r"|cell line: \d+)>",
    anchors=(", in <module>", ", in <cell line"),
    example='  File "/home/me/train.py", line 12, in <module>',
    role=Role.CONTEXT,
)
ANY_CHILD = ("ImportError", "ModuleNotFoundError", "OSError", "MemoryError", "SyntaxError")
"""errors of an import that is fine by itself: another environment, memory, a page file"""


@FAULT.explain
def python_refused_to_start_processes(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(REFUSED)
    if not seen:
        return None
    place = _place(wreckage.seen(TOP_LEVEL), (*wreckage.seen(REIMPORT), *seen)[0])
    return FAULT.diagnosis(
        f"{_script(place)} starts processes at its top level: each spawned child imports it, "
        "reaches the same line and would start its own children, so Python refused",
        confidence=0.96,
        seen=(*seen[:2], *place),
        culprit=Culprit(rank=seen[0].rank, what=_where(place)),
        fix="move what starts the work into a function, and call it under "
        '`if __name__ == "__main__":`; to test it: importing the script must start nothing',
    )


@FAULT.explain
def child_ran_the_script_again(wreckage: Wreckage) -> Diagnosis | None:
    """The traceback goes through the child's import of the script into code that runs."""
    seen = wreckage.seen(REIMPORT)
    if not seen or wreckage.seen(REFUSED) or _import_itself_failed(wreckage):
        return None
    place = _place(wreckage.seen(TOP_LEVEL), seen[0])
    return FAULT.diagnosis(
        f"a spawned child imported {_script(place)} to find its function, and the script started "
        'its work again on import: it is not under `if __name__ == "__main__":`',
        confidence=0.75 if place else 0.6,
        seen=(*seen[:1], *place),
        culprit=Culprit(rank=seen[0].rank, what=_where(place)),
        fix='call the work only under `if __name__ == "__main__":`; a decorator that runs the '
        "function at once needs the guard too; to test it: importing the script must start nothing",
        unknown=("whether the import itself failed: the end of the traceback would show it",),
    )


def _import_itself_failed(wreckage: Wreckage) -> bool:
    return any(
        one.kind.rpartition(".")[2] in ANY_CHILD
        for one in wreckage.raised
        if not one.frames or any("_fixup_main" in frame.function for frame in one.frames)
    )


def _place(frames: Sequence[Sighting], near: Sighting) -> tuple[Sighting, ...]:
    """The script's own top-level frame in that traceback: below the import, above the refusal."""
    same = [one for one in frames if one.line.source == near.line.source]
    after = [one for one in same if 0 < one.line.number - near.line.number <= NEAR]
    before = [one for one in same if 0 < near.line.number - one.line.number <= NEAR]
    if near.pattern == REIMPORT.name:
        return tuple(after[:1])
    return tuple(before[:1])


def _script(place: Sequence[Sighting]) -> str:
    return place[0].fields["file"].replace("\\", "/").rsplit("/", 1)[-1] if place else "the script"


def _where(place: Sequence[Sighting]) -> str:
    return f"{_script(place)} line {place[0].fields['line']}" if place else ""


# --- in what a user wrote -----------------------------------------------------------------------

GUARD = 'put what starts the work into a function, and call it under `if __name__ == "__main__":`'


@FAULT.lint_python
def processes_start_on_import(program: Program, source: Source) -> Iterator[Finding]:
    if source.file.endswith("__main__.py"):
        return  # a child does not run a package's __main__.py again
    for birth in import_time_starts(program, complete=source.complete):
        if spawns(birth.method, source.here.python):
            yield _would_start_children(source, birth)
        elif birth.method == "default":
            yield _only_by_fork(source, birth)


def _would_start_children(source: Source, birth: ImportTimeStart) -> Finding:
    assert source.program is not None
    how = "forkserver, Python's default since 3.14," if birth.method == "default" else birth.method
    return FAULT.error(
        f"{birth.what} runs when this file is imported: it is not under "
        '`if __name__ == "__main__":`',
        reason=f"children started by {how} import the file, reach the same line and would start "
        "their own children: Python stops them with RuntimeError ('… before the current process "
        "has finished its bootstrapping phase')",
        fix=GUARD,
        evidence=[cited(birth.starter, source.file)],
        at=source.program.place(birth.entry),
    )


def _only_by_fork(source: Source, birth: ImportTimeStart) -> Finding:
    assert source.program is not None
    return FAULT.note(
        f'{birth.what} runs when this file is imported, with no `if __name__ == "__main__":`',
        reason="that works only while children are forked; with forkserver (Linux's default since "
        "Python 3.14), on macOS and on Windows it raises RuntimeError",
        fix=GUARD,
        evidence=[cited(birth.starter, source.file)],
        at=source.program.place(birth.entry),
    )


@FAULT.lint_python
def start_method_is_set_twice(program: Program, source: Source) -> Iterator[Finding]:
    if source.file.endswith("__main__.py"):
        return
    for call in second_choice(program):
        yield FAULT.error(
            "set_start_method() runs again in every child: this raises RuntimeError ('context has "
            "already been set')",
            reason="a child that is not forked imports this file, and its start method is already "
            "set by then",
            fix='move it under `if __name__ == "__main__":`, or use a context: '
            "`ctx = multiprocessing.get_context('spawn')` and `ctx.Process(…)`",
            at=program.place(call.node),
        )
