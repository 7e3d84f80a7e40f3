"""Python imports this before the script of a rank; it leaves no trace but the hook.

First our folder and our variables go, so that whatever this process starts inherits nothing.
Then the sitecustomize that this folder hid is run, as Python would have run it. Then the hook
is started.

Below a wrapper (`bash wrapper.sh`, `nsys profile python`, `conda run`) all of that waits until a
process imports torch: only that one is the rank.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))
NAMES = ("PAGE", "WORDS", "SOCKET", "LAUNCHER", "EVENTS", "PLACE", "RANK_PID")
LAUNCHERS = ("accelerate", "conda", "deepspeed", "mamba", "torchrun")
"""programs in Python that start the rank, or ranks of their own, and are none"""


def _take_back() -> None:
    rest = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part != HERE]
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    else:
        os.environ.pop("PYTHONPATH", None)
    for name in NAMES:
        os.environ.pop(f"HOLDFAST_{name}", None)


def _is_launcher() -> bool:
    """By its name: `python /usr/bin/accelerate …`, `python -m accelerate.commands.launch …`."""
    words = [word for word in getattr(sys, "orig_argv", [])[1:] if word != "-m"]
    first = next((word for word in words if not word.startswith("-")), "")
    name = os.path.basename(first)
    return name in LAUNCHERS or name.startswith(("accelerate.commands.", "torch.distributed.run"))


def _run_the_hidden_one() -> None:
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module  # the script finds its own, not this one
    spec.loader.exec_module(module)


def _start_hook(said: "dict[str, str]") -> None:
    """Import our own package by its place: the rank's Python may not have it on its path."""
    if not said["PAGE"] or _is_launcher():
        return
    if "holdfast" not in sys.modules:
        spec = spec_from_file_location(
            "holdfast", os.path.join(PACKAGE, "__init__.py"), submodule_search_locations=[PACKAGE]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"no package at {PACKAGE}")
        sys.modules["holdfast"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["holdfast"])
    hook = import_module("holdfast.rank.hook")
    if said["RANK_PID"] != str(os.getpid()):
        hook.start_below_a_wrapper(said, _take_back)
        return
    hook.start(
        page=said["PAGE"],
        words=said["WORDS"],
        socket=said["SOCKET"],
        launcher=said["LAUNCHER"],
        events=said["EVENTS"],
    )


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
_said = {name: os.environ.get(f"HOLDFAST_{name}", "") for name in NAMES}
if _said["RANK_PID"] == str(os.getpid()) and not _is_launcher():
    _take_back()
try:
    _run_the_hidden_one()
finally:
    try:
        _start_hook(_said)
    except Exception as _problem:  # noqa: BLE001 - nothing of ours may break a script
        os.write(
            2,
            f"holdfast> monitoring is disabled in this rank, training continues: "
            f"{type(_problem).__name__}: {_problem}\n".encode(),
        )
