"""Python -> Source. Parsed, never imported, never run."""

from __future__ import annotations

import ast
import warnings

from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source, SourceKind, SyntaxRefusal
from holdfast.findings import Place
from holdfast.lint.readers import python_environ

WORDS = (
    "holdfast",
    ".distributed", "environ", "accelerate", "Accelerat", "deepspeed", "horovod", "lightning",
    "Lightning", "multiprocessing", "threading", "subprocess", "DataLoader", "DistributedSampler",
    "torch.save", "torch.load", "torch.cuda", ".cuda(", "import distributed", "import save",
    "import cuda", "init_process_group", "torch_xla", "concurrent.futures", "getenv", "putenv",
    "fork", "Trainer(",
)  # fmt: skip
"""Nothing is ever found in a script without any of these, such as one that only defines a model: it
is parsed, so that a broken one is reported, but not walked. For an example in a document they may
be further up."""


def concerns_us(text: str) -> bool:
    return any(word in text for word in WORDS)  # several times as fast as one expression


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
    if complete and not concerns_us(text):
        return Source(file=file, kind=SourceKind.PYTHON)
    if first_line > 1:
        ast.increment_lineno(tree, first_line - 1)
    return of_program(
        Program(tree, text, file, first_line=first_line, indent=indent), complete=complete
    )


def of_program(program: Program, *, complete: bool) -> Source:
    return Source(
        file=program.file,
        kind=SourceKind.PYTHON,
        program=program,
        settings=python_environ.settings(program),
        reads=python_environ.reads(program),
        complete=complete,
    )


def read_all(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    """As `read`, but a text that Python refuses is a Source that says so, at its line."""
    try:
        return read(text, file, first_line=first_line, indent=indent, complete=complete)
    except SyntaxError as problem:
        error = f"{type(problem).__name__}: {problem.msg}"
        return _refused(file, error, problem.lineno or 1, (problem.offset or 1) + indent)
    except ValueError as problem:  # NUL bytes, before Python 3.12
        return _refused(file, f"ValueError: {problem}", 1, 1)
    except (RecursionError, MemoryError):
        return _refused(file, "it is nested too deeply to be parsed", 1, 1)


def _refused(file: str, error: str, line: int, column: int) -> Source:
    place = Place(file=file, line=max(line, 1), column=max(column, 1))
    return Source(
        file=file, kind=SourceKind.PYTHON, refused=SyntaxRefusal(error=error, place=place)
    )
