"""Where the script ends its process, and when: noted before anything unwinds.

`sys.exit` raises an exception that no excepthook sees. Hydra and others print the exception that
ended the work and call it inside their `except`: without this, such a rank leaves nothing but a
code, long after its peers have complained of it. What is called may still be caught, so the call
is only noted in the page; last words are written once Python really shuts down.

`raise SystemExit` passes by: of that only the shutdown is seen, its time and no line.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from holdfast.rank import own_page
from holdfast.rank.last_words import LastWordsWriter, describe, own_line

SHORT = 120
"""characters of a place or a text that fit into the page"""


def follow(writer: LastWordsWriter) -> None:
    """Each name keeps its signature, and pickles as what it was called before. In a forked child,
    which has these already, the words go to its own writer."""
    global _calls  # noqa: PLW0603 - one process has one
    if _calls is not None:
        _calls.begin(writer)
        return
    calls = _calls = _ExitCalls(writer)
    sys.exit = calls.noted(sys.exit, "sys.exit")
    os._exit = calls.noted(os._exit, "os._exit", at_once=True)
    os._exit.__module__ = "os"
    quitter: Any = type(getattr(sys.modules["builtins"], "exit", None))
    if quitter is not type(None):
        quitter.__call__ = calls.noted(quitter.__call__, "exit", skip=1)
    shutdown = getattr(threading, "_shutdown", None)
    if shutdown is not None:
        threading._shutdown = calls.before(shutdown)  # type: ignore[attr-defined] # noqa: SLF001


class _ExitCalls:
    def __init__(self, writer: LastWordsWriter) -> None:
        self.begin(writer)

    def begin(self, writer: LastWordsWriter) -> None:
        self.writer = writer
        self.code = 0
        self.words: dict[str, Any] | None = None
        """of the exception that was being handled at the last call, if any"""

    def noted(
        self, leave: Callable[..., Any], by: str, *, skip: int = 0, at_once: bool = False
    ) -> Any:
        """`leave`, and the call noted before; `skip` of its arguments are not the status."""

        @functools.wraps(leave)
        def exit(*args: Any, **named: Any) -> Any:  # noqa: A001 - seen in tracebacks of SystemExit
            try:
                if own_page.page is not None and _in_main_thread():
                    status = (*args[skip:], *named.values(), None)[0]
                    self._note(status, by, sys._getframe(1))  # noqa: SLF001
                    if at_once:
                        self.shut_down()
            except Exception as problem:  # noqa: BLE001
                own_page.complain(problem)
            return leave(*args, **named)

        return exit

    def before(self, shutdown: Callable[[], Any]) -> Callable[[], Any]:
        """Python's first act when the main thread is done: it then waits for other threads, and
        calls the script's atexit functions."""

        @functools.wraps(shutdown)
        def shut_down() -> Any:
            try:
                self.shut_down()
            except Exception as problem:  # noqa: BLE001
                own_page.complain(problem)
            return shutdown()

        return shut_down

    def _note(self, status: Any, by: str, caller: FrameType) -> None:
        code, text = exit_code(status)
        at, handled = time.monotonic(), sys.exc_info()[1]
        said = {"by": by, "code": code, "where": own_line(caller)[:SHORT], "text": text[:SHORT]}
        if own_page.page is not None:
            own_page.page.exit_called(json.dumps(said), at)
        self.code, self.words = code, None
        if code and handled is not None and not isinstance(handled, SystemExit):
            words = describe(type(handled), handled, handled.__traceback__)
            self.words = {**words, "at": at, "exit_code": code}

    def shut_down(self) -> None:
        page = own_page.page
        if page is not None:  # not in a forked child, which shuts down as well
            page.leaving()
            if self.code:
                self.writer.note_exit(self.words)


def exit_code(status: Any) -> tuple[int, str]:
    """The code the kernel will see, and what Python prints instead of one."""
    if status is None:
        return 0, ""
    if isinstance(status, int):
        return status & 0xFF, ""
    return 1, str(status)


def _in_main_thread() -> bool:
    """In another one `sys.exit` ends that thread alone; `os._exit` there is rare enough."""
    return threading.get_ident() == threading.main_thread().ident


_calls: _ExitCalls | None = None
