"""A rule of the user's own, and the table that it is read from. Pure.

    [tool.holdfast.rules.loss-too-high]
    pattern = 'loss=(?P<value>[0-9.]+)'
    means = "the loss exploded"
    above = 100

A wrong rule is refused with one sentence before anything is started: a typo in a rule would
otherwise be noticed in the night in which the rule was needed.
"""

from __future__ import annotations

import enum
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import ConfigError

MOST_RULES = 200
LONGEST_PATTERN = 2_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEYS = (
    "pattern", "means", "severity", "above", "below", "within", "every", "ranks", "fix"
)  # fmt: skip
_NUMBERS = ("above", "below", "within", "every")


class Severity(enum.Enum):
    """What a rule of the user's weighs beside holdfast's own answers."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    """`explain` lists it among the answers, below a certain one"""
    CAUSE = "cause"
    """`explain` puts it first: the user says that this line is the cause"""


class RanksAsked(enum.Enum):
    ANY = "any"
    EACH = "each"


class OwnRule(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    pattern: str
    means: str
    severity: Severity = Severity.WARNING
    above: float | None = None
    below: float | None = None
    within: float | None = None
    """seconds from the start of the ranks in which a line must have come"""
    every: float | None = None
    """seconds, the most between two lines, counted from the first"""
    ranks: RanksAsked | tuple[int, ...] = RanksAsked.ANY
    """of which ranks; for `within` and `every`: one of them is enough, or each must write it"""
    fix: str = ""

    @property
    def reads_number(self) -> bool:
        return self.above is not None or self.below is not None

    @property
    def must_appear(self) -> bool:
        """Its line is a good sign: what is told is its absence."""
        return self.within is not None or self.every is not None

    @property
    def reports_lines(self) -> bool:
        """A line, or the number in one, is what is told."""
        return self.reads_number or not self.must_appear

    def concerns(self, rank: int | None) -> bool:
        return not isinstance(self.ranks, tuple) or rank is None or rank in self.ranks

    def limit(self) -> str:
        """'above 100', 'below 0.5', or both."""
        told = [("above", self.above), ("below", self.below)]
        return " or ".join(f"{word} {value:g}" for word, value in told if value is not None)

    def exceeded(self, value: float) -> str:
        """'above 100' where that number is; '' where it is fine."""
        if self.above is not None and value > self.above:
            return f"above {self.above:g}"
        return f"below {self.below:g}" if self.below is not None and value < self.below else ""


class RuleSet(msgspec.Struct, frozen=True, kw_only=True):
    rules: tuple[OwnRule, ...] = ()
    file: str = ""
    """where they were read from"""

    def __bool__(self) -> bool:
        return bool(self.rules)

    def named(self, name: str) -> OwnRule | None:
        return next((rule for rule in self.rules if rule.name == name), None)


NO_RULES = RuleSet()


def parse(table: Any, file: str) -> RuleSet:
    """Of `[tool.holdfast.rules]`: a table of tables. Raises ConfigError for the first bad one."""
    if not isinstance(table, dict):
        raise ConfigError(
            f"{file}: rules must be tables, one for each rule",
            hint="write [tool.holdfast.rules.NAME] with pattern and means below it",
        )
    if len(table) > MOST_RULES:
        raise ConfigError(f"{file}: {len(table)} rules; at most {MOST_RULES} are read")
    return RuleSet(rules=tuple(_rule(name, body, file) for name, body in table.items()), file=file)


def decode(content: bytes, file: str) -> RuleSet:
    """As a run's folder keeps them; none where the file is damaged, or not ours."""
    try:
        kept = msgspec.json.decode(content, type=RuleSet)
        table = {one.name: msgspec.to_builtins(one) for one in kept.rules}
        for body in table.values():
            del body["name"]
        given = {n: {k: v for k, v in b.items() if v not in (None, "")} for n, b in table.items()}
        return parse(given, file)
    except (ValueError, RecursionError):  # ConfigError and msgspec's are ValueErrors
        return NO_RULES


def _rule(name: str, body: Any, file: str) -> OwnRule:
    where = f"{file}: rule {name[:64]!r}"
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: a name has letters, digits, '-', '_' and '.' only, at most 64 of them"
        )
    if not isinstance(body, dict):
        raise ConfigError(f"{where} must be a table", hint=f"write [tool.holdfast.rules.{name}]")
    if unknown := next((key for key in body if key not in _KEYS), None):
        raise ConfigError(
            f"{where} has no key {unknown[:64]!r}", hint=f"choose from {', '.join(_KEYS)}"
        )
    rule = OwnRule(
        name=name,
        pattern=_text(body, "pattern", where),
        means=_text(body, "means", where),
        severity=_severity(body.get("severity", Severity.WARNING.value), where),
        ranks=_ranks(body.get("ranks", RanksAsked.ANY.value), where),
        fix=_text(body, "fix", where) if "fix" in body else "",
        **{key: _number(body, key, where) for key in _NUMBERS},
    )
    _check_pattern(rule, where)
    return rule


def _text(body: Mapping[str, Any], key: str, where: str) -> str:
    value = body.get(key)
    if value is None:
        raise ConfigError(f"{where} has no {key}", hint="a rule needs pattern and means")
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: {key} must be a text, got {value!r:.60}")
    return value if key == "pattern" else " ".join(value.split())


def _severity(value: Any, where: str) -> Severity:
    known = [one.value for one in Severity]
    if value not in known:
        raise ConfigError(
            f"{where}: severity: unknown value {value!r:.60} (choose from {', '.join(known)})"
        )
    return Severity(value)


def _ranks(value: Any, where: str) -> RanksAsked | tuple[int, ...]:
    if value in ("any", "each"):
        return RanksAsked(value)
    numbers = value if isinstance(value, list) else [value]
    if numbers and all(type(one) is int and 0 <= one < 10_000_000 for one in numbers):
        return tuple(sorted(set(numbers)))
    raise ConfigError(f"{where}: ranks must be 'any', 'each' or a list of ranks, got {value!r:.60}")


def _number(body: Mapping[str, Any], key: str, where: str) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{where}: {key} must be a number, got {value!r:.60}")
    if key in ("within", "every") and value <= 0:
        raise ConfigError(f"{where}: {key} must be > 0 seconds, got {value:g}")
    return float(value)


def _check_pattern(rule: OwnRule, where: str) -> None:
    if len(rule.pattern) > LONGEST_PATTERN:
        raise ConfigError(
            f"{where}: its pattern has {len(rule.pattern)} characters; at most {LONGEST_PATTERN}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            regex = re.compile(rule.pattern)
    except (re.error, OverflowError, RecursionError, MemoryError) as problem:
        raise ConfigError(
            f"{where}: its pattern is no regular expression: {str(problem) or 'nested too deeply'}",
            hint="in TOML write it in single quotes: pattern = 'loss=([0-9.]+)'",
        ) from None
    if regex.search(""):
        raise ConfigError(f"{where}: its pattern matches every line, even an empty one")
    if rule.reads_number and not (regex.groups == 1 or "value" in regex.groupindex):
        raise ConfigError(
            f"{where}: above and below need to know which number: give the pattern one group, or "
            "one with the name 'value'",
            hint="for example pattern = 'loss=(?P<value>[0-9.]+)'",
        )
