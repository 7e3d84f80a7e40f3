"""A checkpoint is written straight over the only copy.

What you see   After a crash, a full disk or a preemption during a save, the checkpoint does not
               load: `PytorchStreamReader failed reading zip archive`, `unexpected EOF`. The one
               before it is gone too, for it was the same file.
Why            torch.save opens the path for writing, which empties the old file, and then writes
               for as long as the state is large. Until it is done there is no checkpoint at all. A
               job is killed in that moment more often than by chance: many schedulers announce a
               preemption, and the script answers by saving. When every rank saves to one path, they
               write into each other's file.
How to be sure `python -m zipfile -t checkpoint.pt` says whether a file is whole.
Fix            One rank writes to a temporary file in the same folder, flushes it, and renames it:
               `torch.save(state, tmp)`, then `os.replace(tmp, path)`; better, keep the one before
               it too. `holdfast.Checkpoint` does all that, and checks what it loads.
Sources        https://pubs.opengroup.org/onlinepubs/9699919799/functions/rename.html (rename is
               atomic)
               https://docs.python.org/3/library/os.html#os.replace
               torch 2.13.0: torch/serialization.py (_open_zipfile_writer)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.checkpoints.saving import EXPORTS, RESUMES, Save, keeps_the_old, saves
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.ranks.reached_by_all import all_ranks_come_here
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(code="HOLD804", slug="checkpoint-not-atomic")

STATE = re.compile(r"(?i)state|model|weight|param|optim|ckpt|check_?point|snapshot|(?:^|_)net")
"""what would be missed: not a table of losses, or a tensor put aside to look at"""

GROUPS = (
    "torch.distributed.init_process_group",
    "torch.distributed.distributed_c10d.init_process_group",
)


@FAULT.lint_python
def it_saves_over_the_only_copy(program: Program, _: Source) -> Iterator[Finding]:
    for save in saves(program):
        if _by_every_rank(program, save):
            yield _everybody(program, save)
        elif save.fixed and not keeps_the_old(program, save):
            yield from _over_itself(program, save)


def _by_every_rank(program: Program, save: Save) -> bool:
    if save.fixed is None or not program.called(*GROUPS):
        return False
    names = {n.id for n in ast.walk(save.path) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(save.path) if isinstance(n, ast.Attribute)}
    own = any("rank" in word.lower() for word in (*names, save.written))
    return not own and all_ranks_come_here(program, save.call.node)


def _everybody(program: Program, save: Save) -> Finding:
    return FAULT.warning(
        f"every rank saves to `{save.written}`, all at the same time",
        reason="nothing here chooses a rank: on one machine, or a shared file system, they empty "
        "and write the same file at once, and what is left may be none of theirs",
        fix="let one rank write: `if dist.get_rank() == 0: torch.save(state, tmp); "
        "os.replace(tmp, path)`, with a barrier for the others before they load it; for sharded "
        "models `torch.distributed.checkpoint.save`",
        at=program.place(save.call.node),
    )


def _over_itself(program: Program, save: Save) -> Iterator[Finding]:
    words = save.written + " " + ast.unparse(save.path)
    named = RESUMES.search(words)
    resumed = (named or save.loaded) if save.repeated else (named and save.loaded)
    fix = (
        "write beside it and rename: `torch.save(state, path + '.tmp')`, then `os.replace(path + "
        "'.tmp', path)`; or `holdfast.Checkpoint(folder, state)`, which also keeps the one before"
    )
    if resumed and not EXPORTS.search(words):
        loaded = ", the file this script goes on from" if save.loaded else ""
        yield FAULT.warning(
            f"torch.save writes straight over `{save.written}`{loaded}",
            reason="it empties the old file first: a job that is killed, or a disk that fills up, "
            "while it writes leaves no checkpoint at all",
            fix=fix,
            at=program.place(save.call.node),
        )
    elif save.repeated and STATE.search(f"{words} {ast.unparse(save.what)}"):
        yield FAULT.note(
            f"torch.save writes straight over `{save.written}`, the only copy",
            reason="it empties the old file first: killed while it writes, the job leaves neither "
            "the old nor the new one",
            fix=fix,
            at=program.place(save.call.node),
        )
