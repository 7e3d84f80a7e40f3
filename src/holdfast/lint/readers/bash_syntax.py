"""Ask bash about a script that the grammar cannot parse completely.

The grammar does not know every corner of the shell: it failed on 22 of 693 published launch
scripts; bash refused 10 of these, and none of the others. So bash decides. `bash -n` parses and
runs nothing; where there is no bash, nothing is reported.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import msgspec

from holdfast.analysis.source.source import Source, SyntaxRefusal
from holdfast.findings import Place

SECONDS = 5.0
SAID = re.compile(r"line (?P<line>\d+): (?P<words>.+)")


def confirmed(source: Source, text: str) -> Source:
    """The source, refused only if bash refuses it too."""
    if source.refused is None or source.refused.confirmed:
        return source
    return msgspec.structs.replace(source, refused=_by_bash(text, source.file))


def _by_bash(text: str, file: str) -> SyntaxRefusal | None:
    bash = shutil.which("bash")
    if bash is None:
        return None
    try:
        done = subprocess.run(
            [bash, "-n"],
            input=text.encode(errors="replace"),
            capture_output=True,
            env={"LC_ALL": "C"},
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = SAID.search(done.stderr.decode(errors="replace")) if done.returncode else None
    if said is None:
        return None
    place = Place(file=file, line=int(said["line"]))
    return SyntaxRefusal(error=f"bash: {said['words']}", place=place)
