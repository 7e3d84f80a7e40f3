"""The catalogue: finds every fault and its page, and asks them about a machine."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import NamedTuple

import msgspec

import holdfast.faults
from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.patterns import all_patterns
from holdfast.analysis.machine import MachineFacts
from holdfast.analysis.machine.smoke_failures import ErrorMeaning, SmokeFailure
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.rules.rule import RuleSet
from holdfast.analysis.source.source import Source
from holdfast.errors import ConfigError
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Finding, Page, Status

SECTIONS = {
    "What you see": "see",
    "Why": "why",
    "How to be sure": "sure",
    "Fix": "fix",
    "Known limits": "limits",
    "Sources": "sources",
}
OPTIONAL = ("limits",)


class Family(NamedTuple):
    folder: str
    title: str


FAMILIES = {
    "1": Family("rendezvous", "Rendezvous and ports"),
    "2": Family("network", "Interfaces and paths"),
    "3": Family("gpu", "GPU and fabric"),
    "4": Family("host", "Host limits and containers"),
    "5": Family("settings", "Settings"),
    "6": Family("collectives", "Collectives and code"),
    "7": Family("processes", "Processes and kernel"),
    "8": Family("checkpoints", "Checkpoints and resume"),
    "9": Family("launchers", "Launchers and schedulers"),
}
"""by the first digit of a fault's code"""


PLAIN = RunTraits(priority=1000)


_DOCSTRING = re.compile(r'r?""".*?"""', re.DOTALL)


class Entry:
    """A fault and its page."""

    def __init__(self, module: ModuleType) -> None:
        self.fault: Fault = module.FAULT
        self._module = module

    @functools.cached_property
    def page(self) -> Page:
        """Read when it is shown: what checks a machine or watches a job needs none."""
        return page_of(self.fault, _docstring(self._module))


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Every fault, by code. Two faults with one code or slug stop the program."""
    taken: dict[str, str] = {}
    for module in _modules():
        fault = _entry(module).fault
        for identity in (fault.code, fault.slug):
            if identity in taken:
                raise ValueError(f"{module} and {taken[identity]} both call themselves {identity}")
            taken[identity] = module
    return _by_code(_entry(module) for module in _modules())


@functools.cache
def _entry(module: str) -> Entry:
    return Entry(importlib.import_module(module))


def _docstring(module: ModuleType) -> str:
    """From the file where Python has dropped it (`python -OO`, PYTHONOPTIMIZE=2)."""
    if module.__doc__ is None and (written := _DOCSTRING.match(inspect.getsource(module))):
        return str(ast.literal_eval(written.group()))
    return module.__doc__ or ""


def _by_code(found: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(found, key=lambda entry: entry.fault.code))


@functools.cache
def _modules() -> tuple[str, ...]:
    """The module of every fault: all files of the families' folders, none of them imported."""
    return tuple(
        f"{holdfast.faults.__name__}.{folder}.{found.name}"
        for folder in sorted(family.folder for family in FAMILIES.values())
        for path in holdfast.faults.__path__
        for found in pkgutil.iter_modules([os.path.join(path, folder)])
    )


def _may_be_named(module: str, name: str) -> bool:
    """By its file alone, without importing it: the file has the slug, its folder the family."""
    _, folder, file = module.rsplit(".", 2)
    family = FAMILIES.get(name.upper().removeprefix("HOLD")[:1])
    return file == name.lower().replace("-", "_") or (
        family is not None and folder == family.folder
    )


def page_of(fault: Fault, docstring: str) -> Page:
    """Read the page out of the docstring of a fault's file; every section must be there."""
    title, _, rest = inspect.cleandoc(docstring).partition("\n")
    parts = re.split(rf"^({'|'.join(SECTIONS)})(?=\s|$)", rest, flags=re.MULTILINE)
    text = {
        SECTIONS[name]: inspect.cleandoc(" " * len(name) + body).strip()
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    missing = [
        name for name, field in SECTIONS.items() if not text.get(field) and field not in OPTIONAL
    ]
    if missing or not title:
        raise ValueError(f"the page of {fault.code} lacks: {', '.join(missing) or 'its title'}")
    return Page(
        code=fault.code,
        slug=fault.slug,
        title=title.rstrip("."),
        see=text["see"],
        why=text["why"],
        sure=text["sure"],
        fix=text["fix"],
        sources=tuple(line.strip() for line in text["sources"].splitlines() if line.strip()),
        faces=fault.faces,
        limits=text.get("limits", ""),
        related=fault.related,
    )


def with_example(page: Page) -> Page:
    """The page with what holdfast says when it meets that fault; generated, like the docs."""
    file = os.path.join(os.path.dirname(__file__), "faults", "_examples", f"{page.slug}.txt")
    try:
        with open(file, encoding="utf-8") as text:
            return msgspec.structs.replace(page, example=text.read().rstrip("\n"))
    except OSError:
        return page


def family(fault: Fault) -> Family:
    return FAMILIES[fault.code[4]]


def by_slug(slug: str) -> Fault:
    return _slugs()[slug]


@functools.cache
def _slugs() -> dict[str, Fault]:
    return {entry.fault.slug: entry.fault for entry in entries()}


def traits(slug: str) -> RunTraits:
    """How `run` treats that fault; one without a run face, or unknown here, is treated plainly."""
    fault = _slugs().get(slug)
    return (fault and fault.traits) or PLAIN


def refuse_names_of_faults(rules: RuleSet) -> None:
    """A rule of the user's own is an answer under its own name, which must not mean two things."""
    for rule in rules.rules:
        if fault := _slugs().get(rule.name):
            raise ConfigError(
                f"{rules.file}: rule {rule.name!r}: this is the name of a fault ({fault.code})",
                hint="give the rule another name",
            )


def choose(only: Collection[str], skip: Collection[str]) -> list[Fault]:
    """The faults to ask about. A name is a code, a slug, or a family ('HOLD1' or '1')."""
    everything = entries() if not only or skip else _named_in_files(only)
    for name in (*only, *skip):
        if not any(_is_named(entry.fault, name) for entry in everything):
            raise ConfigError(
                f"no fault is called {name!r}", hint="holdfast explain --list shows all of them"
            )
    return [
        entry.fault
        for entry in everything
        if (not only or any(_is_named(entry.fault, name) for name in only))
        and not any(_is_named(entry.fault, name) for name in skip)
    ]


def _named_in_files(names: Collection[str]) -> tuple[Entry, ...]:
    """Only the faults that may be meant: importing all of them takes longer than asking a few."""
    return _by_code(
        _entry(module)
        for module in _modules()
        if any(_may_be_named(module, name) for name in names)
    )


def _is_named(fault: Fault, name: str) -> bool:
    family = name.upper().removeprefix("HOLD")
    return name.lower() == fault.slug or name.upper() == fault.code or family == fault.code[4]


def check(facts: MachineFacts, faults: Iterable[Fault]) -> list[Finding]:
    """Ask every fault about this machine."""
    return [finding for fault in faults for finding in fault.ask_check(facts)]


def check_nodes(facts: NodesFacts, faults: Iterable[Fault]) -> list[Finding]:
    """What every fault says about all nodes and the paths between them, then what each node found
    on itself, without guesses that the others have refuted."""
    asked = list(faults)
    found = [finding for fault in asked for finding in fault.ask_nodes(facts)]
    for node in facts.nodes:
        refuted = {fault.slug for fault in asked if fault.is_refuted(facts, node)}
        found += [finding for finding in node.findings if finding.slug not in refuted]
    return found


def stops_a_start(finding: Finding) -> bool:
    """Whether `run` refuses to start ranks because of it. What only hurts jobs on GPUs is said and
    no more: nothing tells before the start whether this job uses any."""
    return finding.status is Status.ERROR and not by_slug(finding.slug).gpus_only


def lint(source: Source, faults: Iterable[Fault]) -> list[Finding]:
    """Ask every fault about this piece of source."""
    return [finding for fault in faults for finding in fault.ask_lint(source)]


def log_patterns() -> tuple[LogPattern, ...]:
    """Every pattern that logs are searched for: the shared ones, and each fault's own."""
    own = (pattern for entry in entries() for pattern in entry.fault.log_patterns)
    return (*all_patterns.ALL, *own)


@functools.cache
def error_meanings() -> tuple[ErrorMeaning, ...]:
    """What an error of a smoke test means, by the faults that claim it."""
    return tuple(meaning for entry in entries() for meaning in entry.fault.error_meanings)


def fault_of(failure: SmokeFailure) -> Fault:
    """The one fault that claims this failure of a smoke test."""
    (fault,) = (entry.fault for entry in entries() if failure in entry.fault.smoke_failures)
    return fault


def search(words: str) -> list[Page]:
    """Pages for a code, a slug or a word; an exact name gives one page, else the best first."""
    wanted = words.strip().lower()
    for entry in entries():
        if wanted in (entry.fault.code.lower(), entry.fault.slug):
            return [entry.page]
    scored = [(_relevance(entry.page, wanted.split()), entry.page) for entry in entries()]
    return [page for score, page in sorted(scored, key=lambda s: (-s[0], s[1].code)) if score]


def _relevance(page: Page, words: list[str]) -> int:
    """Every word must occur somewhere; a hit in the slug counts most, then title, then symptom."""
    places = [(page.slug, 100), (page.title, 30), (page.see, 10), (page.why, 3), (page.fix, 2)]
    score = 0
    for word in words:
        hits = sum(weight for text, weight in places if word in text.lower())
        if not hits:
            return 0
        score += hits
    return score
