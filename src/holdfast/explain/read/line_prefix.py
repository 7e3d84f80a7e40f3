"""A line of a log -> who wrote it, when, and what: by the grammar of the prefixes before it.

Prefixes nest: `node7: [default3]:[rank11]:[E1115 01:03:15.14 ProcessGroupNCCL.cpp:689] …` went
through pdsh, torchrun's --tee, torch's own handler and glog. They are peeled from the left until
none fits. `[Rank 3]` is torch's rank in the first group used, or a framework's global
rank: it counts only where nothing better is there, and `[PG … Rank r]` (counted within
a group) only for the default group. NCCL's `[0]` is a CUDA device, not a rank.

Three prefixes look like ordinary text: srun's `12: `, pdsh's `node7: `, and `node7:12: `, the
example of torchrun's --log-line-prefix-template. They count only when a sample of the file fits
them (`grammar_of`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from holdfast.explain.read import timestamps

PEELS = 10
"""more prefixes than any real line has"""
LABELLED = 0.7
"""so much of a file must fit a prefix that looks like ordinary text"""


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """What one file's lines are like, where a single line cannot tell."""

    bare_ranks: bool = False
    """srun -l: `12: text`"""
    hosts: frozenset[str] = frozenset()
    """pdsh, clush: `node7: text`"""
    host_and: str = ""
    """torchrun's template: `node7:12: text`, where 12 is the 'rank' or the 'local_rank'"""
    indent: int = 0
    """blanks before every line, as in a listing that was pasted somewhere"""
    year: int = timestamps.YEAR
    """of the dates that tell none"""


PLAIN = Grammar()


class Head(msgspec.Struct, kw_only=True):
    text: str
    """what is left: a suffix of the raw line"""
    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    pid: int | None = None
    at: float | None = None
    grammar: str = ""
    """the prefixes found, outermost first: 'tee rank glog'"""


_LEVEL = r"(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|TRACE)"
_HOST = r"[A-Za-z0-9][\w.\-]*"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"

# A field is named after what it tells: `rank__rank`, `nccl__pid`.
_PREFIXES = {
    "rank": r"\[(?:rank|RANK)[:= ]{0,2}(?P<rank__rank>\d{1,7})(?:/\d+)?\]:? ?",
    "glog": rf"\[[IWEFVC](?:(?P<glog__day>\d{{3,4}}) (?P<glog__time>{_TIME}))? [\w./\-]+:\d+\] ?",
    "elastic": rf"[IWEFVC](?P<elastic__day>\d{{4}}) (?P<elastic__time>{_TIME})\s+"
    r"(?P<elastic__pid>\d+) \S+:\d+\] ?(?:\[[\d/_]+\] )?",
    "date": rf"\[?(?P<date__day>\d{{4}}[-/]\d\d[-/]\d\d)[T _](?P<date__time>{_TIME})"
    r"(?:Z| ?[+-]\d\d:?\d\d)?\]?(?: -| >>|,|:)? ?",
    # journalctl -o short-full
    "full": r"[A-Z][a-z]{2} (?P<full__day>\d{4}-\d\d-\d\d) "
    rf"(?P<full__time>{_TIME}) [A-Z]{{2,5}} ",
    "logfmt": rf"(?:time|ts)=\"?(?P<logfmt__day>\d{{4}}-\d\d-\d\d)T(?P<logfmt__time>{_TIME})"
    r"[^\s\"]{0,6}\"? level=\w{4,8} (?:(?!msg=)[\w.]{1,40}=\S{1,200} ){0,4}msg=\"?",
    "american": rf"\[?(?P<american__day>\d\d/\d\d/(?:\d{{4}}|\d\d)) (?P<american__time>{_TIME})\]?"
    r"(?: -|:)? ?",
    "tee": r"\[[A-Za-z_]{1,20}(?P<tee__local_rank>\d{1,4})\]:",
    "mpi": r"\[[^\]\s]{1,60},(?P<mpi__rank>\d{1,7})\]<std\w+>: ?",
    # SageMaker's MPI
    "sage": r"\[1,mpirank:(?P<sage__rank>\d{1,7}),(?P<sage__host>[\w.\-]{1,60})\]<std\w+>: ?",
    "horovod": r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?\[(?P<horovod__rank>\d{1,7})\]"
    r"<std\w+>:? ?",
    "nccl": rf"(?P<nccl__host>{_HOST}):(?P<nccl__pid>\d{{1,9}}):\d+ (?:\[-?\d+\] |(?=NCCL ))",
    "ray": r"\([A-Za-z_][\w.\[\]<>]*(?:\([^)]*\))?(?: rank=(?P<ray__rank>\d{1,7}))? "
    r"pid=(?P<ray__pid>\d{1,9})(?:, ip=(?P<ray__host>[^)\s]+))?\) ?",
    "pod": r"\[pod/(?P<pod__host>[^/\]\s]+)/[^\]]*\] ?",
    "compose": r"(?P<compose__host>[A-Za-z][\w.\-]*-\d+) {1,40}\| ?",
    "syslog": rf"(?P<syslog__day>[A-Z][a-z]{{2}} [ \d]\d) (?P<syslog__time>{_TIME}) "
    rf"(?P<syslog__host>{_HOST}) [\w./\-]+(?:\[(?P<syslog__pid>\d{{1,9}})\])?: ",
    "uptime": r"\[ {0,6}\d{1,9}\.\d{3,6}\] ?",
    "dmesg": rf"\[[A-Z][a-z]{{2}} (?P<dmesg__day>[A-Z][a-z]{{2}} [ \d]\d) (?P<dmesg__time>{_TIME})"
    r" \d{4}\] ?",
    "nvrx": rf"\[(?P<nvrx__host>{_HOST})\] \[workload:(?:(?P<nvrx__rank>\d{{1,7}})"
    r"\((?P<nvrx__local_rank>\d{1,4})\))?[^\]]{0,60}\] (?:[\w.]{1,60}:\d+ )?",
    # llm-foundry and Composer
    "composer": r"rank(?P<composer__rank>\d{1,7})\[(?P<composer__pid>\d{1,9})\]\[[^\]]{1,60}\]: "
    rf"(?:{_LEVEL}: [\w.]{{1,80}}: )?",
    "cri": r"std(?:err|out) [FP] ",
    "nemo": rf"\[NeMo [DIWEC] (?P<nemo__day>\d{{4}}-\d\d-\d\d) (?P<nemo__time>{_TIME})[^\]]*\] ?",
    "place": rf"\[titan\] |\[{_LEVEL}\|[\w.]{{1,60}}:\d+\] ?"
    r"|\[[\w./<>\-]+\.(?:py|cpp|cc|cu|h|hpp):\d+(?::[\w<>]+)?\] ?",
    "level": rf"\[{_LEVEL}\] ?|{_LEVEL}:[\w.]+:|(?:- )?{_LEVEL} - (?:[\w.]+ - )?"
    rf"|{_LEVEL} {{0,4}}\| |\| {_LEVEL} *\| [^|]{{0,80}}? - |{_LEVEL} {{1,5}}(?=\d{{4}}-)"
    # torchtitan; Rust's loggers
    rf"|[\w.]{{1,60}} - {_LEVEL} - | ?{_LEVEL} \[?[a-z_]\w{{0,40}}::[\w:]{{1,60}}?(?:\]|:) "
    r"(?:src/\S{1,60}:\d+: )?",
    "logger": rf"[a-z_][\w.]{{2,60}}: \[{_LEVEL}\] ",
    "spot": r"\[(?P<spot__host>[A-Za-z][\w.\-]*):(?P<spot__local_rank>\d{1,4})\]: ?",
    # Logs come by mail and through issue trackers, quoted.
    "quoted": r"(?:>(?: |$)){1,3}",
    # ParlAI
    "parlai": r"rank: {0,3}(?P<parlai__rank>\d{1,7}) \| ",
    "said": r"[Rr]ank[ _:]{0,2}(?P<said__rank>\d{1,7})(?:/\d+)?: ",
}
_PREFIX = re.compile("|".join(f"(?P<{name}>{form})" for name, form in _PREFIXES.items()))
_FIELDS = {
    name: tuple(
        (group.partition("__")[2], group)
        for group in _PREFIX.groupindex
        if group.startswith(f"{name}__")
    )
    for name in _PREFIXES
}
_RANK_IN_TEXT = re.compile(
    r"\[Rank (?P<frozen>\d{1,7})\]"
    r"|\[PG (?:ID 0 PG GUID )?0(?:\(default_pg\))? Rank (?P<first>\d{1,7})\]"
)
_TAG = re.compile(rf"(?P<host>{_HOST}) (?:kernel|[\w./\-]+\[(?P<pid>\d{{1,9}})\]): ")
_BARE_RANK = re.compile(r" {0,5}(\d{1,6}): ?")
_BARE_HOST = re.compile(r"([A-Za-z][\w.\-]*): ?")
_HOST_AND_RANK = re.compile(rf"(?P<host>{_HOST}):(?P<number>\d{{1,6}}):(?: |$)")
_TORCHS_RANK = re.compile(r"\[rank(\d{1,7})\]:")
_FILE_NAME = re.compile(r"\.(?:py|c|cc|cpp|cu|h|hpp|sh|js|ts|go|rs|java|txt|log|ya?ml|json)$")
_MID_LINE = re.compile(r"\[rank\d{1,7}\]:(?:\[[IWEF][\d ]| Traceback )")
"""a progress bar ends without a line break, so the next message follows on the same line"""


def head(raw: str, grammar: Grammar = PLAIN) -> Head:
    """Never raises; the text is a suffix of the line."""
    found = Head(text=raw)
    begin = grammar.indent if raw[: grammar.indent].isspace() else 0
    at = _bare(raw, grammar, found, begin) or begin
    names = [found.grammar] if found.grammar else []
    for _ in range(PEELS):
        prefix = _PREFIX.match(raw, at)
        if (prefix is None or prefix.end() == at) and found.rank is None:
            prefix = _behind_a_bar(raw, at)
        if prefix is None or prefix.end() == at:
            break
        kind = prefix.lastgroup or ""
        _take(found, kind, prefix, grammar)
        names.append(kind)
        at = prefix.end()
        if kind in ("date", "full") and (tag := _TAG.match(raw, at)):  # journalctl -o short-iso
            found.host, at = tag["host"], tag.end()
            names.append("tag")
    if found.rank is None and (told := _RANK_IN_TEXT.match(raw, at)):
        found.rank = int(told["frozen"] or told["first"])
        names.append("own-word")
    found.text = raw[at:]
    found.grammar = " ".join(names)
    return found


def _behind_a_bar(raw: str, at: int) -> re.Match[str] | None:
    late = _MID_LINE.search(raw, at) if "[rank" in raw else None
    return _PREFIX.match(raw, late.start()) if late else None


def _bare(raw: str, grammar: Grammar, found: Head, begin: int) -> int:
    """The end of a prefix that only the whole file makes believable."""
    if grammar.bare_ranks and (number := _BARE_RANK.match(raw, begin)):
        found.rank, found.grammar = int(number[1]), "srun"
        return number.end()
    if grammar.host_and and (label := _HOST_AND_RANK.match(raw, begin)):
        setattr(found, grammar.host_and, int(label["number"]))
        found.host, found.grammar = label["host"], "template"
        return label.end()
    if grammar.hosts and (host := _BARE_HOST.match(raw, begin)) and host[1] in grammar.hosts:
        found.host, found.grammar = host[1], "pdsh"
        return host.end()
    return 0


def _take(found: Head, kind: str, prefix: re.Match[str], grammar: Grammar) -> None:
    """The first value stays, but torch's own prefix for the rank beats a launcher's."""
    told = {field: value for field, group in _FIELDS[kind] if (value := prefix[group])}
    if "rank" in told and (found.rank is None or kind == "rank"):
        found.rank = int(told["rank"])
    if "local_rank" in told and found.local_rank is None:
        found.local_rank = int(told["local_rank"])
    if "host" in told and not found.host:
        found.host = told["host"]
    if "pid" in told:
        found.pid = int(told["pid"])
    if "day" in told and found.at is None:
        found.at = timestamps.seconds(told["day"], told["time"], year=grammar.year)


def grammar_of(sample: Iterable[str]) -> Grammar:
    """Decide by a sample of lines whether `12: ` and `node7: ` are labels in this file."""
    lines = [line for line in sample if line.strip()][:2000]
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines), default=0)
    indent = indent if len(lines) > 1 else 0  # one alone may be a line of a traceback
    lines = [line[indent:] for line in lines]
    numbers: Counter[str] = Counter()
    hosts: Counter[str] = Counter()
    for line in lines:
        if number := _BARE_RANK.match(line):
            numbers[number[1]] += 1
        elif host := _BARE_HOST.match(line):
            hosts[host[1]] += 1
    # A traceback alone has 'ValueError: …' lines; a label repeats, and nearly all lines have one.
    often = {name for name, count in hosts.items() if count >= 3 and _is_host(name)}
    labelled = sum(hosts[name] for name in often)
    years = [year for line in lines if (year := _year(line))]
    return Grammar(
        bare_ranks=len(lines) >= 4 and sum(numbers.values()) >= LABELLED * len(lines),
        hosts=frozenset(often) if labelled >= LABELLED * len(lines) else frozenset(),
        host_and=_host_and(lines),
        indent=indent,
        year=years[0] if years else timestamps.YEAR,
    )


def _host_and(lines: list[str]) -> str:
    """What the number in `node7:12: ` is. torch's own `[rank12]:` behind it tells; without one
    nearly all lines must have the label, with the numbers of ranks: a compiler's `a.c:12: ` has
    others."""
    found = [
        (label, _TORCHS_RANK.match(line, label.end()))
        for line in lines
        if (label := _HOST_AND_RANK.match(line)) and not _FILE_NAME.search(label["host"])
    ]
    told = {(int(label["number"]), int(rank[1])) for label, rank in found if rank}
    if told:
        return "rank" if all(number == rank for number, rank in told) else "local_rank"
    numbers = {int(label["number"]) for label, _ in found}
    whole = len(numbers) > 1 and numbers == set(range(len(numbers)))
    return "rank" if whole and len(found) >= LABELLED * len(lines) else ""


def _is_host(name: str) -> bool:
    """`loss: 0.3` and `INFO: …` are labels too; machines of a cluster are numbered."""
    return any(letter.isdigit() for letter in name) and "Error" not in name


def _year(line: str) -> int:
    found = re.search(r"\b(20[12]\d)[-/][01]\d[-/][0-3]\d[T _]", line[:80])
    return int(found[1]) if found else 0
