"""What a rank writes when it ends by itself, without an error."""

from __future__ import annotations

import re

from holdfast.analysis.logs.pattern import LogPattern, Role

LEFT_OPEN = LogPattern(
    name="group-not-destroyed: left-open",
    pattern=r"destroy_process_group\(\) was not called before program exit"
    r"|process group has NOT been destroyed before",
    anchors=("destroy_process_group() was not called", "process group has NOT been destroyed"),
    example="[rank0]:[W1115 01:03:15.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: "
    "destroy_process_group() was not called before program exit, which can leak resources.",
    role=Role.ADVICE,
    slug="group-not-destroyed",
)
"""written by a destructor at the end of the program: a rank that is killed does not write it, one
that raised does, after its traceback"""

_SAYS_DONE = re.compile(
    r"(?i)\b(?:train(?:ing)?|run|job|fit|experiment|work|script|rank \d+|all)\b.{0,30}"
    r"\b(?:is )?(?:finished|completed?|done|ended|over)\b[\s.!]{0,5}$"
    r"|^\W{0,5}(?:done|finished|exiting|bye|all done|completed?)\b[\s.!]{0,5}$"
    r"|\b(?:finished|completed|done with) (?:the )?(?:training|run|job|fitting)\b"
    r"(?! (?:epoch|step|loop|batch|iteration|phase))"
    r"|\bexit(?:ing|s|ed)?\b.{0,20}\b(?:normally|early|code 0|cleanly)\b|\bexiting[\s.!]{0,5}$"
)


def says_done(text: str) -> bool:
    """The last line of a rank reads like the end of its script."""
    return bool(_SAYS_DONE.search(text[-200:]))
