"""No text from a log, a machine or a file gets into an advised command as more than one word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import catalogue
from holdfast.fault import Broken, Fault
from tests.faults.hostile_text import OPTION, commands, danger, hostile_versions, outside_words
from tests.faults.of import module_of_tests

FAULTS = [entry.fault for entry in catalogue.entries()]
ASKED: dict[str, tuple[str, Callable[[Fault, Any], Any]]] = {
    "check": ("facts", lambda fault, facts: fault.ask_check(facts)),
    "check_nodes": ("facts", lambda fault, facts: fault.ask_nodes(facts)),
    "lint": ("source", lambda fault, source: fault.ask_lint(source)),
    "run": ("scene", lambda fault, scene: fault.ask_run(scene)),
    "explain": ("wreckage", lambda fault, wreckage: fault.ask_explain(wreckage)),
}
REPEATS_COMMANDS = ("container-flags",)
"""they show a command of the user's own script without one of its options"""


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.slug for fault in FAULTS])
def test_hostile_text_stays_one_word(fault: Fault) -> None:
    bad = [
        f"{verb}, line {line}: {why}: {command}"
        for verb, line, answer in _answers_to_hostile_text(fault)
        for command in commands(answer)
        if (why := danger(command)) and not (why == OPTION and fault.slug in REPEATS_COMMANDS)
    ]
    assert not bad, "\n".join(dict.fromkeys(bad))


def _answers_to_hostile_text(fault: Fault) -> Iterator[tuple[str, int, object]]:
    """Each form of a command is attacked once, however many cases lead to it."""
    tests = module_of_tests(fault)
    attacked = set()
    for verb, (field, ask) in ASKED.items():
        for case in getattr(getattr(tests, f"test_{verb}", None), "cases", ()):
            if not case.speaks:
                continue
            asked = getattr(case, field)
            answers = list(ask(fault, asked))
            words = outside_words(asked, answers)
            form = str([re.sub("|".join(map(re.escape, words)) or "$^", "·", c)
                        for one in answers for c in commands(one)])  # fmt: skip
            if (verb, form) in attacked:
                continue
            attacked.add((verb, form))
            for hostile in hostile_versions(asked, words):
                for answer in ask(fault, hostile):
                    assert not isinstance(answer, Broken), answer
                    yield verb, case.line, answer


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ping -c 3 a;touch${IFS}PWNED", "outside of quotes"),
        ("ping -c 3 'a'$(touch PWNED)", "outside of quotes"),
        ("ping -c 3 a' ;touch PWNED; '\"", "no shell can read it: No closing quotation"),
        ("ping -c 3 -oPWNED=x", OPTION),
        ("ls 'a\ntouch PWNED'", "a character that changes what is shown"),
        ("ls 'a\u202ePWNED'", "a character that changes what is shown"),
        ("ping -c 3 'a;touch PWNED'", ""),
        ("ls 'it'\"'\"'s ;touch PWNED; '", ""),
        ("export A=-oPWNED=x; df -h .", ""),
    ],
)
def test_what_counts_as_dangerous(command: str, why: str) -> None:
    assert danger(command) == why
