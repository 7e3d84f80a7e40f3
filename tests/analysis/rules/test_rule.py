from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.analysis.rules import rule
from holdfast.analysis.rules.rule import OwnRule, RanksAsked, Severity
from holdfast.errors import ConfigError

WHOLE: dict[str, Any] = {
    "pattern": r"loss=(?P<value>[0-9.]+)",
    "means": "the loss  exploded",
    "severity": "error",
    "above": 100,
    "below": 0.5,
    "within": 120,
    "every": 300,
    "ranks": [3, 0],
    "fix": "lower the learning rate",
}


def test_every_key_is_read() -> None:
    found = rule.parse({"loss-too-high": WHOLE}, "pyproject.toml")
    assert found.rules == (
        OwnRule(
            name="loss-too-high",
            pattern=r"loss=(?P<value>[0-9.]+)",
            means="the loss exploded",
            severity=Severity.ERROR,
            above=100.0,
            below=0.5,
            within=120.0,
            every=300.0,
            ranks=(0, 3),
            fix="lower the learning rate",
        ),
    )
    assert found.rules[0].limit() == "above 100 or below 0.5"


def test_two_keys_are_enough() -> None:
    (found,) = rule.parse({"x": {"pattern": "spilled", "means": "it is slow"}}, "f").rules
    assert (found.severity, found.ranks) == (Severity.WARNING, RanksAsked.ANY)
    assert found.reports_lines
    assert not found.must_appear


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"pattern": None}, "has no pattern"),
        ({"means": None}, "has no means"),
        ({"means": " "}, "means must be a text"),
        ({"pattern": 3}, "pattern must be a text, got 3"),
        ({"pattern": "loss=(", "above": None, "below": None}, "no regular expression: missing )"),
        ({"pattern": "(" * 900 + ")" * 900}, "no regular expression"),
        ({"pattern": "x" * 2001}, "has 2001 characters; at most 2000"),
        ({"pattern": "(a)?"}, "matches every line, even an empty one"),
        ({"pattern": "loss"}, "give the pattern one group, or one with the name 'value'"),
        ({"pattern": "(a) (b)"}, "give the pattern one group"),
        ({"severity": "fatal"}, "unknown value 'fatal' (choose from note, warning, error, cause)"),
        ({"severity": ["error"]}, "severity: unknown value ['error']"),
        ({"above": "100"}, "above must be a number, got '100'"),
        ({"above": True}, "above must be a number, got True"),
        ({"below": math.nan}, "below must be a number, got nan"),
        ({"within": 0}, "within must be > 0 seconds, got 0"),
        ({"every": -3}, "every must be > 0 seconds, got -3"),
        ({"ranks": "all"}, "ranks must be 'any', 'each' or a list of ranks, got 'all'"),
        ({"ranks": [-1]}, "ranks must be"),
        ({"ranks": []}, "ranks must be"),
        ({"ranks": [True]}, "ranks must be"),
        ({"patern": "x"}, "has no key 'patern'"),
    ],
)
def test_a_bad_rule_is_one_sentence(changed: dict[str, Any], sentence: str) -> None:
    table = {name: value for name, value in (WHOLE | changed).items() if value is not None}
    with pytest.raises(ConfigError) as refused:
        rule.parse({"loss": table}, "f.toml")
    assert refused.value.sentence.startswith("f.toml: rule 'loss'")
    assert sentence in refused.value.sentence
    assert "\n" not in refused.value.sentence


@pytest.mark.parametrize("table", [[], "x", {"bad name": WHOLE}, {"": WHOLE}, {"x": 3}])
def test_what_is_no_table_of_tables_is_refused(table: Any) -> None:
    with pytest.raises(ConfigError):
        rule.parse(table, "f.toml")


def test_a_number_on_the_limit_is_fine() -> None:
    (found,) = rule.parse({"loss": WHOLE}, "f").rules
    assert [found.exceeded(value) for value in (100.0, 100.5, 0.5, 0.4, math.nan, math.inf)] == [
        "", "above 100", "", "below 0.5", "", "above 100"
    ]  # fmt: skip
