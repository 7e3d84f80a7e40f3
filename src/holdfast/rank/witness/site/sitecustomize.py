"""Python imports this before every script of a drilled job; the sitecustomize that it hides is run
as Python would have run it.

Under `holdfast run` the launcher's own sitecustomize comes first and runs this one as the hidden
one. Our folder stays on PYTHONPATH, so that processes that a rank starts are guarded as well.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def _run_the_hidden_one() -> None:
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module  # the script finds its own, not this one
    spec.loader.exec_module(module)


def _start() -> None:
    """Import our own package by its place: the rank's Python may not have it on its path."""
    if "holdfast" not in sys.modules:
        spec = spec_from_file_location(
            "holdfast", os.path.join(PACKAGE, "__init__.py"), submodule_search_locations=[PACKAGE]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"no package at {PACKAGE}")
        sys.modules["holdfast"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["holdfast"])
    import_module("holdfast.rank.witness.start").start(os.environ)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
try:
    _run_the_hidden_one()
finally:
    try:
        if os.environ.get("HOLDFAST_DRILL"):
            _start()
    except Exception as _problem:  # noqa: BLE001 - nothing of ours may break a script
        os.write(
            2,
            f"holdfast> this process is not recorded for the drill, training continues: "
            f"{type(_problem).__name__}: {_problem}\n".encode(),
        )
