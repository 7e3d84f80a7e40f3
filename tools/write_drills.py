"""Write the table of all drills into docs/drill.md, from the faces of the faults themselves.

`make docs` writes it; a test compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from holdfast import catalogue
from holdfast.analysis.drill.injection import Injection
from holdfast.analysis.drill.rehearsal import JobShape, Rehearsal
from holdfast.fault import Drill, Fault

PAGE = Path(__file__).parent.parent / "docs" / "drill.md"
PLACE = re.compile(
    r"(?<=<!-- drills: written by `make docs` -->\n).*(?=<!-- end of drills -->)", re.DOTALL
)
HEADS = ("drill", "what is done, on 4 ranks of 60 steps", "the job", "needs")


def sample(drill: Drill) -> Rehearsal:
    """The job that the table talks of."""
    job = JobShape(
        ranks=4,
        steps=60,
        saved_after=(10, 20, 30, 40, 50, 60),
        hosts=("alpha", "bravo") if "hosts" in drill.needs else ("",),
        on_gpu=True,
        seconds_per_step=2.0,
    )
    return Rehearsal(name=drill.name, rank=2, at_step=0 if drill.at_start else 33, job=job)


def table() -> str:
    lines = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    for entry in catalogue.entries():
        lines += [row(entry.fault, drill) for drill in entry.fault.drills]
    return "\n".join(lines) + "\n"


def row(fault: Fault, drill: Drill) -> str:
    answer = fault.ask_drill(drill, sample(drill))
    done = (answer.does, answer.then.value) if isinstance(answer, Injection) else (answer.why, "")
    needs = [{"hosts": "`--hosts 2`", "gpu": "a GPU"}[need] for need in drill.needs]
    name = f"[{drill.name}](faults/{fault.slug}.md)"
    cells = (name + " (quick)" * drill.quick, *done, ", ".join(needs))
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def refreshed(page: str) -> str:
    return PLACE.sub(lambda _: table(), page)


def main() -> int:
    PAGE.write_text(refreshed(PAGE.read_text()))
    print(f"drills: {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
