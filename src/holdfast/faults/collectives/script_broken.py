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

from holdfast import shell_words, text
from holdfast.analysis.logs import broken_scripts, sightings
from holdfast.analysis.logs.wreckage import LoggedException, Wreckage
from holdfast.analysis.source.source import Source, SourceKind
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

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


# --- explain -------------------------------------------------------------------------------------

SHELL = FAULT.log_pattern(
    "shell",
    r"(?P<script>[\w./\-]{1,200}): (?:line )?(?P<line>\d{1,6}): "
    r"(?P<what>[Ss]yntax error[^\n]{0,120}|unexpected EOF while looking for matching[^\n]{0,20}"
    r"|\$'\\r': command not found)",
    anchors=(
        *("syntax error near unexpected", "syntax error: unexpected", "Syntax error: "),
        *("EOF while looking for matching", "$'\\r': command not found"),
    ),
    example="launch.sh: line 12: syntax error near unexpected token `done'",
)
WINDOWS = FAULT.log_pattern(
    "line-ends",
    # Slurm's own check, and what the kernel and env make of `#!/bin/bash\r`.
    r"Batch script contains DOS line breaks|env: .{0,20}(?:bash|python3?)\\r.{0,3}: No such"
    r"|/(?:bash|sh|python3?)(?:\^M|\\r): bad interpreter",
    anchors=(
        *("contains DOS line breaks", "bash\\r", "python\\r", "python3\\r"),
        *("^M: bad interpreter", "\\r: bad interpreter"),
    ),
    example="sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
)


@FAULT.explain
def script_was_refused(wreckage: Wreckage) -> Diagnosis | None:
    if refused := broken_scripts.refused(wreckage):
        return _by_python(refused)
    if ends := wreckage.seen(WINDOWS):
        return FAULT.diagnosis(
            "a launch script has the line ends of Windows, and its first line or commands cannot "
            "be found with the extra character",
            confidence=0.93,
            seen=ends,
            culprit=Culprit(what="launch script"),
            fix="convert it with `dos2unix SCRIPT` or `sed -i 's/\\r$//' SCRIPT`",
        )
    seen = wreckage.seen(SHELL)
    if not seen:
        return None
    script, line = sightings.field(seen, "script"), sightings.field(seen, "line")
    return FAULT.diagnosis(
        f"the shell could not parse {script} at line {line}: {sightings.field(seen, 'what')}",
        confidence=0.65,
        seen=seen,
        culprit=Culprit(what=f"{script}:{line}"),
        fix="correct that line, or the quote or block that was opened above it",
        next=shell_words.command("bash -n {}", script),
    )


def _by_python(refused: tuple[LoggedException, ...]) -> Diagnosis:
    first = next((one for one in refused if one.frames), refused[0])
    file, line = (first.frames[0].file, first.frames[0].line) if first.frames else ("", 0)
    ranks = sorted({one.rank for one in refused if one.rank is not None})
    by = f" ({text.ranks(ranks)})" if ranks else ""
    what = text.shorten(first.text.partition("\n")[0], 120)
    return FAULT.diagnosis(
        f"Python could not compile {f'{file}, line {line}' if file else 'a file'}{by}: "
        f"{first.kind}: {what}; none of that file ran",
        confidence=0.9 if file else 0.6,
        culprit=Culprit(what=f"{file}:{line}" if file else "the script"),
        evidence=[
            Evidence(
                quote=f"{one.kind}: {what}",
                source=one.line.source,
                line=one.line.number,
                rank=one.rank,
            )
            for one in refused[:3]
        ],
        fix="correct that line; if it is right for a newer Python, start the job with that one",
        next=shell_words.command("python -m py_compile {}", file),
        unknown=["which Python ran it: syntax of a newer one is refused in the same way"],
    )
