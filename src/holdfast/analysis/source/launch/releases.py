"""Versions that exist, and version specifiers that pip can read."""

from __future__ import annotations

import functools
import re

from holdfast.analysis.source import data_file

Releases = dict[tuple[int, int], tuple[int, ...]]
"""minor version -> its patch numbers"""

PACKAGES = {
    "torch": "torch",
    "nvidia-nccl-cu11": "nccl",
    "nvidia-nccl-cu12": "nccl",
    "nvidia-nccl-cu13": "nccl",
}
"""name on PyPI -> name in data/releases.tsv"""

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*"
    r"(?P<specifiers>(?:===|==|~=|!=|<=|>=|<|>).*)"
)
_CLAUSE = re.compile(r"\s*(===|==|~=|!=|<=|>=|<|>)\s*(\S+)\s*")


@functools.cache
def _tables() -> dict[str, Releases]:
    tables: dict[str, Releases] = {}
    for name, minor, patches in data_file.rows(__file__, "releases.tsv", columns=3):
        major, _, second = minor.partition(".")
        numbers = tuple(int(patch) for patch in patches.split())
        tables.setdefault(name, {})[int(major), int(second)] = numbers
    return tables


def nccl() -> Releases:
    return _tables()["nccl"]


def torch() -> Releases:
    return _tables()["torch"]


def of_package(name: str) -> Releases:
    """What PyPI has of this package; empty where we do not know."""
    return _tables()[PACKAGES[name]] if name in PACKAGES else {}


def requirement(text: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """'torch[opt]>=2.1,<3' as its name and its clauses; None when it is no such thing.

    packaging's Requirement would refuse as a whole what `refused` is to give a reason for.
    """
    match = _REQUIREMENT.fullmatch(text.partition(";")[0].strip())
    if match is None:
        return None
    clauses = [_CLAUSE.fullmatch(part) for part in match["specifiers"].split(",") if part.strip()]
    if not clauses or any(clause is None for clause in clauses):
        return None
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return name, tuple((c[1], c[2]) for c in clauses if c)


def refused(operator: str, version: str) -> str:
    """Why PEP 440 does not allow this clause; '' when it does."""
    # 20 ms to import, and most that is linted pins no version
    from packaging.specifiers import InvalidSpecifier, Specifier  # noqa: PLC0415

    try:
        Specifier(f"{operator}{version}")
    except InvalidSpecifier:
        return _why_refused(operator, version)
    return ""


def _why_refused(operator: str, version: str) -> str:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    if "*" in version and operator not in ("==", "!="):
        return f"`{operator}` takes no wildcard"
    plain = version.removesuffix(".*")
    if "*" in plain:
        return "a wildcard may only be the last part, as in `==2.4.*`"
    try:
        parsed = Version(plain)
    except InvalidVersion:
        return "that is no version" + _with_plus(plain)
    if plain != version:
        return "a wildcard may only follow plain numbers, as in `==2.4.*`"
    if parsed.local:
        return f"`{operator}` takes no local version (`+{parsed.local}`)"
    return "`~=` needs at least two numbers, as in `~=2.4`"


def _with_plus(version: str) -> str:
    match = re.fullmatch(r"(\d+(?:\.\d+)+)[._-]?((?:cu|rocm|cpu|xpu)[\w.]*)", version)
    return f": a build is named with a plus, `{match[1]}+{match[2]}`" if match else ""


def never_released(table: Releases, version: str) -> str:
    """The releases there are of that minor version, in words; '' where the version may exist."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)(?:\+\w+|-\d+)?", version)
    if match is None:
        return ""
    minor = int(match[1]), int(match[2])
    patches = table.get(minor)
    if patches is None or int(match[3]) in patches:
        return ""
    return ", ".join(f"{minor[0]}.{minor[1]}.{patch}" for patch in patches)
