"""The script is no valid Python, shell or YAML.

What you see   Every rank prints the same SyntaxError or IndentationError within a second, and the
               launcher reports that all of them failed. An example pasted from a document does
               so before its first line runs.
Why            Python compiles the whole file before it runs any of it. Examples are often written
               with a comment where a body must stand (`for epoch in range(10):` and then only
               `# training`), with prompts or output between the lines, or for Python 2. A file
               for a newer Python than yours is refused in the same way. bash stops at the line
               it does not understand, after it has run what stands above.
How to be sure `python -m py_compile train.py`, `bash -n launch.sh` name the line; nothing is run.
Fix            Give an empty body `pass` or `...`; take out prompts and output. Where the syntax is
               newer than your interpreter, start the job with the one it was written for.
Sources        https://docs.python.org/3/reference/compound_stmts.html
               https://docs.python.org/3/library/py_compile.html
               https://docs.python.org/3/library/exceptions.html#IndentationError
"""

from __future__ import annotations

import platform
from collections.abc import Iterator

import msgspec

from holdfast.analysis.source.source import Source, SourceKind
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(code="HOLD626", slug="script-broken")


@FAULT.lint
def its_language_refuses_it(source: Source) -> Iterator[Finding]:
    """A whole file is only told about: it may be meant for another Python than this one."""
    refused = source.refused
    if refused is None:
        return
    if source.kind is not SourceKind.PYTHON:
        summary, why = "only a part of it could be read", refused.error
        yield msgspec.structs.replace(FAULT.skipped(why), summary=summary, place=refused.place)
    else:
        why = f"Python {platform.python_version()} refuses it: {refused.error}"
        yield msgspec.structs.replace(FAULT.skipped(why), place=refused.place)
