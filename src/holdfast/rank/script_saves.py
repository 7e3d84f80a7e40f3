"""Checkpoints that the script itself writes, by torch.save or torch.distributed.checkpoint.

Nothing is decided by them: where holdfast does not restart a job, it says what could be loaded. As
in finite_numbers.py a small function that torch calls is wrapped, so that no frame of ours is in a
traceback. It is called when a save begins; that the save was finished is known at a later step.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.rank import events, own_page

DCP_SAVER = "torch.distributed.checkpoint.state_dict_saver"
DEEPEST = 3
MOST_VALUES = 50
"""of each mapping that are looked into"""
MOST_PENDING = 8
TELL_EVERY = 1.0
"""seconds"""
MOST_FAILURES = 20
"""of a look, after which there are no more"""


class _Pending(NamedTuple):
    path: str
    """that the checkpoint is known by; '' when it went to memory first"""
    proof: str
    """a file that is new when the save is finished; '' where there is none to look for"""
    before: tuple[int, int]
    step: int
    with_optimizer: bool
    at: float


class ScriptSaves:
    """One process; called by the thread that trains, or that saves."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._pending: list[_Pending] = []
        self._told_at = -TELL_EVERY
        self._dcp_followed = False
        self._failures = 0

    def before_step(self) -> None:
        """torch does not import its own saver before a script does."""
        if not self._dcp_followed and DCP_SAVER in sys.modules:
            self._dcp_followed = True
            _look_first(sys.modules[DCP_SAVER], "_storage_setup", self.dcp_begins)
        if self._pending:
            self.deliver()

    def torch_save_begins(self, save: Mapping[str, Any]) -> None:
        kind = kind_of(self._torch, save.get("obj"))
        if kind:
            path, proof = _place(save.get("f"), bare=kind == "bare optimizer")
            self._add(path, proof, with_optimizer=kind != "model")

    def dcp_begins(self, save: Mapping[str, Any]) -> None:
        where = save.get("checkpoint_id") or getattr(save.get("storage_writer"), "path", "")
        if where and isinstance(where, (str, os.PathLike)):
            folder = os.fspath(where)
            self._add(folder, os.path.join(folder, ".metadata"), with_optimizer=True)

    def _add(self, path: str, proof: str, *, with_optimizer: bool) -> None:
        if own_page.page is None or not (step := own_page.steps.count):
            return
        now = time.time()
        self._pending.append(_Pending(path, proof, _stamp(proof), step, with_optimizer, now))
        del self._pending[:-MOST_PENDING]

    def deliver(self) -> None:
        """Tell the newest save that is finished; one a second is enough."""
        if time.monotonic() < self._told_at + TELL_EVERY:
            return
        finished = [(one, where) for one in self._pending if (where := _finished(one)) is not None]
        if not finished:
            return
        self._told_at = time.monotonic()
        done, path = max(finished, key=lambda found: (found[0].step, found[0].with_optimizer))
        self._pending = [one for one in self._pending if one.at > done.at]
        events.tell("script-saved", path=path, step=done.step, optimizer=done.with_optimizer)

    def safely(self, look: Callable[[], None]) -> None:
        """Odd objects (with a mapping's methods, and none of its manners) are no reason to
        complain."""
        try:
            if self._failures < MOST_FAILURES:
                look()
        except Exception:  # noqa: BLE001
            self._failures += 1


def kind_of(torch: Any, saved: Any, deepest: int = DEEPEST) -> str:
    """'bare optimizer', 'optimizer' when it holds one, 'model' when it holds nothing more; ''."""
    if isinstance(saved, Mapping):
        if "state" in saved and "param_groups" in saved:
            return "bare optimizer"
        model = hasattr(saved, "_metadata")  # torch gives it to what `Module.state_dict` returns
        inside = [] if model or not deepest else list(saved.values())[:MOST_VALUES]
    elif isinstance(saved, (list, tuple)):
        model, inside = False, list(saved[:MOST_VALUES]) if deepest else []
    else:
        model, inside = isinstance(saved, torch.nn.Module), []
    kinds = {kind_of(torch, one, deepest - 1) for one in inside}
    if kinds & {"bare optimizer", "optimizer"}:
        return "optimizer"
    return "model" if model or "model" in kinds else ""


def _place(file: Any, *, bare: bool) -> tuple[str, str]:
    """What the checkpoint is known by, and the file that is written: libraries that write the
    optimizer to a file of its own have a folder for each checkpoint."""
    name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", "")
    path = os.fspath(name) if isinstance(name, (str, os.PathLike)) else ""
    if not isinstance(path, str):  # of bytes
        path = os.fsdecode(path)
    return (os.path.dirname(path) or path) if bare else path, path


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _finished(one: _Pending) -> str | None:
    """The path of a save that is on the disk; None while it is not."""
    if not one.proof:
        return one.path
    now = _stamp(one.proof)
    if now != (0, 0):
        return one.path if now != one.before else None
    # Not there: not written yet, or written under another name and renamed since.
    return _renamed(one) if one.proof == one.path else None


def _renamed(one: _Pending) -> str | None:
    folder = os.path.dirname(one.path)
    try:
        with os.scandir(folder or ".") as entries:
            files = [(entry.stat().st_mtime, entry.name) for entry in entries if entry.is_file()]
    except OSError:
        return None
    changed, name = max(files, default=(0.0, ""))
    return os.path.join(folder, name) if changed >= one.at - 1 else None


def _look_first(module: Any, name: str, look: Callable[[Mapping[str, Any]], None]) -> None:
    """`look` gets the variables of the function that calls it: what is saved, and where to."""
    work = getattr(module, name, None)
    if work is None:  # a torch that has another name for it
        return

    @functools.wraps(work)
    def look_and_work(*args: Any, **kwargs: Any) -> Any:
        if saves is not None:
            caller = sys._getframe(1).f_locals  # noqa: SLF001
            saves.safely(lambda: look(caller))
        return work(*args, **kwargs)

    setattr(module, name, look_and_work)


saves: ScriptSaves | None = None


def follow(torch: Any) -> None:
    """Only rank 0 speaks, and for all."""
    global saves  # noqa: PLW0603 - one process has one
    if os.environ.get("RANK") != "0":
        return
    saves = ScriptSaves(torch)
    _look_first(torch.serialization, "_check_save_filelike", saves.torch_save_begins)
    # torch imports this module itself, and then deletes its name from torch.optim.
    optimizer: Any = sys.modules["torch.optim.optimizer"]
    optimizer.register_optimizer_step_pre_hook(before_optimizer_step)


def before_optimizer_step(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if saves is not None:
        saves.safely(saves.before_step)


# What `torch.compiler.disable` sets, without the second that importing the compiler takes.
before_optimizer_step._torchdynamo_disable = True  # type: ignore[attr-defined] # noqa: SLF001


def finish() -> None:
    """The process is about to end."""
    if saves is not None:
        saves.safely(saves.deliver)
