"""The command that ssh runs on another host: holdfast, wherever it is installed there; pure.

Users expect the installation they started from: nodes that share a disk have the same virtual
environment at the same path. Where that Python is missing or has no holdfast, PATH decides.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# An empty entry of sys.path is the home folder, where a checkout named holdfast may be.
_HOLDFAST_OR_PATH = (
    "import importlib.util,os,runpy,sys;"
    "sys.path=[p for p in sys.path if p];"
    "importlib.util.find_spec('holdfast') or "
    "os.execvp('sh',['sh','-c','exec holdfast \"$@\"','sh',*sys.argv[1:]]);"
    "runpy.run_module('holdfast',run_name='__main__',alter_sys=True)"
)
_SAME_PYTHON_OR_PATH = (
    'python=$1; code=$2; shift 2; [ -x "$python" ] && exec "$python" -c "$code" "$@"; '
    'exec holdfast "$@"'
)


def remote_command(
    arguments: Sequence[str], *, same_python: str, remote_python: str | None = None
) -> str:
    """One line for the login shell of the other host, be it sh, csh or fish.

    `same_python` is the interpreter that runs here, `remote_python` what the user named.
    """
    if remote_python is not None:
        words = [remote_python, "-m", "holdfast", *arguments]
    elif same_python:
        words = ["sh", "-c", _SAME_PYTHON_OR_PATH, "sh", same_python, _HOLDFAST_OR_PATH, *arguments]
    else:
        words = ["holdfast", *arguments]
    return f"exec {shlex.join(words)}"
