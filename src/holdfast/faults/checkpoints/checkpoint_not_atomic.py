"""A checkpoint is written straight over the only copy.

What you see   After a crash, a full disk or a preemption during a save, the checkpoint does not
               load: `PytorchStreamReader failed reading zip archive`, `unexpected EOF`. The
               previous one is gone too, because it was the same file.
Why            torch.save opens the path for writing, which empties the old file, and then writes
               for as long as the state is large. Until it is done there is no checkpoint. Jobs are
               killed at that moment more often than by chance: many schedulers announce a
               preemption, and the script answers by saving. When every rank saves to one path, they
               overwrite each other's data.
How to be sure `python -m zipfile -t checkpoint.pt` says whether a file is intact.
Fix            One rank writes to a temporary file in the same folder, flushes it, and renames it:
               `torch.save(state, tmp)`, then `os.replace(tmp, path)`; better, keep the previous one
               too. `holdfast.Checkpoint` does all of that, and verifies what it loads.
Known limits   Saves by trainers and other libraries are not seen, and a path whose name is built at
               run time is taken as a different file each time.
Sources        https://pubs.opengroup.org/onlinepubs/9699919799/functions/rename.html (rename is
               atomic)
               https://docs.python.org/3/library/os.html#os.replace
               torch 2.13.0: torch/serialization.py (_open_zipfile_writer)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.checkpoints.saving import (
    EXPORTS,
    RESUMES,
    SaveCall,
    keeps_the_old,
    save_calls,
)
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.ranks.reached_by_all import reached_by_all_ranks
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD804",
    slug="checkpoint-not-atomic",
    related=("checkpoint-corrupt", "checkpoint-incomplete", "checkpoint-cadence"),
)

STATE = re.compile(r"(?i)state|model|weight|param|optim|ckpt|check_?point|snapshot|(?:^|_)net")
"""what a resume needs: not a table of losses, or a tensor saved for inspection"""

GROUPS = (
    "torch.distributed.init_process_group",
    "torch.distributed.distributed_c10d.init_process_group",
)


@FAULT.lint_python
def save_overwrites_the_only_copy(program: Program, _: Source) -> Iterator[Finding]:
    for save in save_calls(program):
        if _by_every_rank(program, save):
            yield _all_ranks_write(program, save)
        elif save.fixed and not keeps_the_old(program, save):
            yield from _overwritten(program, save)


def _by_every_rank(program: Program, save: SaveCall) -> bool:
    if save.fixed is None or not program.called(*GROUPS):
        return False
    names = {n.id for n in ast.walk(save.path) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(save.path) if isinstance(n, ast.Attribute)}
    own = any("rank" in word.lower() for word in (*names, save.written))
    return not own and reached_by_all_ranks(program, save.call.node)


def _all_ranks_write(program: Program, save: SaveCall) -> Finding:
    return FAULT.warning(
        f"every rank saves to `{save.written}` at the same time",
        reason="no condition selects one rank: on one machine or a shared file system all ranks "
        "truncate and write the same file at once, and the result may be a mix of them",
        fix="write on one rank only: `if dist.get_rank() == 0: torch.save(state, tmp); "
        "os.replace(tmp, path)`, with a barrier before the others load it; for sharded models use "
        "`torch.distributed.checkpoint.save`",
        at=program.place(save.call.node),
    )


def _overwritten(program: Program, save: SaveCall) -> Iterator[Finding]:
    words = save.written + " " + ast.unparse(save.path)
    named = RESUMES.search(words)
    resumed = (named or save.loaded) if save.repeated else (named and save.loaded)
    fix = (
        "write a temporary file and rename it: `torch.save(state, path + '.tmp')`, then "
        "`os.replace(path + '.tmp', path)`; or use `holdfast.Checkpoint(folder, state)`, which "
        "also keeps the previous one"
    )
    if resumed and not EXPORTS.search(words):
        loaded = ", the file this script resumes from" if save.loaded else ""
        yield FAULT.warning(
            f"torch.save writes straight over `{save.written}`{loaded}",
            reason="it truncates the old file first: if the job is killed or the disk fills up "
            "during the write, no checkpoint is left",
            fix=fix,
            at=program.place(save.call.node),
        )
    elif save.repeated and STATE.search(f"{words} {ast.unparse(save.what)}"):
        yield FAULT.note(
            f"torch.save writes straight over `{save.written}`, the only copy",
            reason="it truncates the old file first: if the job is killed during the write, "
            "neither the old nor the new one is left",
            fix=fix,
            at=program.place(save.call.node),
        )
