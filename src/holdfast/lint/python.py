"""Python -> Source. Parsed, never imported, never run."""

from __future__ import annotations

import ast
import re
import warnings

from holdfast.source.nouns import Kind, Source
from holdfast.source.program import Program

CONCERNS_US = re.compile(r"torch|multiprocessing|horovod|deepspeed|accelerat|environ|threading")
"""a script without any of these words is parsed, so that a broken one is told, but not walked"""


def read(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    """Raises SyntaxError (with the line of the file) or ValueError where Python would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's literals: '\d', `is 1`
        try:
            tree = ast.parse(text)
        except SyntaxError as problem:
            if problem.lineno is not None:
                problem.lineno += first_line - 1
            raise
    if not CONCERNS_US.search(text):
        return Source(file=file, kind=Kind.PYTHON, complete=complete)
    if first_line > 1:
        ast.increment_lineno(tree, first_line - 1)
    program = Program(tree, text, file, indent=indent)
    return Source(file=file, kind=Kind.PYTHON, program=program, complete=complete)
