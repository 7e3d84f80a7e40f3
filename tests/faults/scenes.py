"""Every scene in the tables of all run faces: a thousand ways in which a job looks."""

from __future__ import annotations

from holdfast import catalogue
from holdfast.analysis.scene.scene import Scene
from tests.faults.of import module_of_tests


def all_scenes() -> list[tuple[str, Scene]]:
    """With the slug and line of the table each one stands in."""
    found = []
    for entry in catalogue.entries():
        if "run" in entry.fault.faces:
            cases = module_of_tests(entry.fault).test_run.cases
            found += [(f"{entry.fault.slug} (line {case.line})", case.scene) for case in cases]
    return found
