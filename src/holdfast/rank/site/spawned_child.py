"""Run at the start of a process that a rank spawned, before multiprocessing's own program."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

SAID: "dict[str, str]" = globals().get("SAID", {})
PACKAGE: str = globals().get("PACKAGE", "")


def _package() -> "Any":
    """By its place: the process's Python may not have it on its path."""
    if "holdfast" not in sys.modules:
        spec = spec_from_file_location(
            "holdfast", f"{PACKAGE}/__init__.py", submodule_search_locations=[PACKAGE]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"no package at {PACKAGE}")
        sys.modules["holdfast"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["holdfast"])
    return import_module("holdfast.rank.hook")


if SAID:
    _package().start_spawned(SAID)
