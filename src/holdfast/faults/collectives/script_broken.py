"""The script is not valid Python, shell or YAML.

What you see   Every rank prints the same SyntaxError or IndentationError within a second, and the
               launcher reports that all of them failed. An example pasted from a document fails
               before its first line runs.
Why            Python compiles the whole file before it runs any of it. Examples often have only a
               comment where a body is required (`for epoch in range(10):` followed by
               `# training`), prompts or output between the lines, or Python 2 syntax. A file
               for a newer Python than yours is rejected in the same way. bash stops at the line
               it does not understand, after it has run everything above it.
How to be sure `python -m py_compile train.py` and `bash -n launch.sh` name the line without running
               anything.
Fix            Give an empty body `pass` or `...`; remove prompts and output. If the syntax is newer
               than your interpreter, start the job with the Python it was written for.
Known limits   holdfast parses with the Python that it runs under: a file for a newer one is
               reported as not checked.
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

FAULT = Fault(code="HOLD626", slug="script-broken", related=("python-exception", "launcher-config"))


@FAULT.lint
def script_cannot_be_parsed(source: Source) -> Iterator[Finding]:
    """Reported as not checked, not as an error: it may be meant for another Python."""
    refused = source.refused
    if refused is None:
        return
    if source.kind is not SourceKind.PYTHON:
        summary, why = "only part of the file could be read", refused.error
        yield msgspec.structs.replace(FAULT.skipped(why), summary=summary, place=refused.place)
    else:
        why = f"Python {platform.python_version()} cannot parse it: {refused.error}"
        yield msgspec.structs.replace(FAULT.skipped(why), place=refused.place)
