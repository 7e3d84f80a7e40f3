"""Notices when torch is imported, and never imports it.

A finder at the head of `sys.meta_path` waits for the one name. It lets the other finders do the
finding and has the found loader call us before and after it runs the module; then it leaves.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from holdfast.rank import own_page


class TorchFinder:
    def __init__(self, *, begins: Callable[[], None], done: Callable[[ModuleType], None]) -> None:
        self.begins = begins
        self.done = done
        self._asking_others = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch" or path is not None or hasattr(self._asking_others, "now"):
            return None
        self._asking_others.now = True
        try:
            spec = find_spec(name)
        finally:
            del self._asking_others.now
        if spec is not None and spec.loader is not None:
            try:
                self._listen(spec)
            except Exception as problem:  # noqa: BLE001
                own_page.complain(problem)
        return spec

    def _listen(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        exec_module = loader.exec_module  # type: ignore[union-attr]

        def exec_and_tell(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # another finder of ours may have been first
            # Not earlier: many a library only asks whether torch can be found.
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            _safely(self.begins)
            exec_module(module)
            _safely(lambda: self.done(module))

        # On the one object, not its class; it takes itself off again when it is called.
        loader.exec_module = exec_and_tell  # type: ignore[union-attr,method-assign]


def _safely(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as problem:  # noqa: BLE001 - the import of torch must not fail for us
        own_page.complain(problem)


def expect(*, begins: Callable[[], None], done: Callable[[ModuleType], None]) -> None:
    """Call back when torch is imported; at once if it already is."""
    torch = sys.modules.get("torch")
    if torch is not None:
        begins()
        done(torch)
        return
    sys.meta_path.insert(0, TorchFinder(begins=begins, done=done))
