"""Settings in what a user wrote, as the judgements about settings want them.

A judgement takes facts: name, value, origin. Here they are made of what is written in a script, a
Dockerfile, an nccl.conf: which settings one process finds together, on how many machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from holdfast import shell_words
from holdfast.analysis.machine import MachineFacts, Setting, known
from holdfast.analysis.source.launch import same_environment
from holdfast.analysis.source.source import Launch, Source, SourceKind
from holdfast.analysis.source.source import SourceSetting as Written
from holdfast.findings import Finding

CONTAINED = (SourceKind.DOCKERFILE, SourceKind.COMPOSE, SourceKind.YAML)
"""meant for a container, whose interfaces and cards are not those of the machine that lints"""


TORCHRUN = ("torchrun", "torch.distributed.launch")
"""both are torch.distributed.run, which sets TORCH_NCCL_ASYNC_ERROR_HANDLING for its ranks"""


class InForce:
    """What one process finds set; the first of a name counts."""

    def __init__(self, settings: Iterable[Setting], *, torch_sees: bool | None = None) -> None:
        self.every = tuple(settings)
        self._by_name: dict[str, Setting] = {}
        self._torch_sees = torch_sees
        for setting in self.every:
            self._by_name.setdefault(setting.name, setting)

    def get(self, name: str) -> Setting | None:
        return self._by_name.get(name)

    def torch(self, *names: str) -> Setting | None:
        """The first of these spellings that torch sees.

        Only the environment counts: NCCL reads its files when it starts, after torch has looked.
        """
        found = (self.get(name) for name in names)
        return next((s for s in found if s and self._is_for_torch(s)), None)

    def _is_for_torch(self, setting: Setting) -> bool:
        return setting.origin == "environment" if self._torch_sees is None else self._torch_sees


def in_force(facts: MachineFacts) -> InForce:
    return InForce(known(facts.settings))


# --- from a source ------------------------------------------------------------------------------


def judged(source: Source) -> Iterator[Written]:
    """Every setting that some program will see."""
    return (s for s in source.settings if s.exported and s.by != "unset")


def readable(source: Source, *names: str) -> Iterator[Written]:
    """Those of these names whose value is known now."""
    return (s for s in judged(source) if s.known and s.name in names)


def as_fact(setting: Written) -> Setting:
    return Setting(name=setting.name, value=setting.value, origin=_origin(setting))


def _origin(setting: Written) -> str:
    place = setting.place
    return f"{place.file}:{place.line}" if place.file else "environment"


class Environment:
    """What one process started by this source finds, as facts, and where each was written."""

    def __init__(self, settings: Iterable[Written], source: Source) -> None:
        self.written = [s for s in settings if s.exported]
        values = [as_fact(s) for s in self.written if s.known]
        self.in_force = InForce(values, torch_sees=source.kind is not SourceKind.NCCL_CONF)

    def has_unknown(self, *names: str) -> bool:
        """Is one of these set to something that is only known when it runs?"""
        return any(s.name in names and not s.known for s in self.written)

    def placed(self, finding: Finding) -> Finding:
        """At the last of the settings that it quotes: there the trouble is made."""
        shown = {(evidence.setting, evidence.source) for evidence in finding.evidence}
        mine = (s for s in self.written if (s.name, _origin(s)) in shown)
        return at(finding, *mine)


def environments(source: Source) -> list[Environment]:
    """Which settings meet in one process."""
    return [Environment(group, source) for group in same_environment.groups(source)]


def at(finding: Finding, *settings: Written) -> Finding:
    """The finding, placed at the last of these settings; the others stay its evidence."""
    last = max(settings, key=lambda s: s.place)
    # Its own line is shown anyway; only what is written elsewhere needs a quote.
    own = (last.name, _origin(last))
    evidence = tuple(e for e in finding.evidence if (e.setting, e.source) != own)
    return msgspec.structs.replace(finding, place=last.place, evidence=evidence)


def once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The same thing at the same place, met in several environments, is said once."""
    said: set[tuple[object, str]] = set()
    for finding in findings:
        if (finding.place, finding.summary) not in said:
            said.add((finding.place, finding.summary))
            yield finding


def is_of_here(source: Source) -> bool:
    """Is what it sets meant for the machine that lints, and for no other?"""
    installed = source.file == "/etc/nccl.conf" or source.file.endswith("/.nccl.conf")
    return source.kind is SourceKind.ENVIRONMENT or (
        source.kind is SourceKind.NCCL_CONF and installed
    )


def may_be_of_here(setting: Written, source: Source) -> bool:
    return source.kind not in CONTAINED and setting.by not in ("docker -e", "ENV")


def machines(source: Source, setting: Written) -> int | None:
    """How many machines a process with this setting is one of; None when nothing tells."""
    launches = (*source.launches, *source.started_by)
    mine = [one for one in launches if setting in one.settings]
    chosen = [*mine, *_around(mine, launches)] if mine else launches
    counts = [n for one in chosen if (n := one.machines) is not None]
    counts += [len({host.name for host in source.hosts})] if source.hosts else []
    return max(counts, default=None)


def _around(mine: Iterable[Launch], launches: Iterable[Launch]) -> Iterator[Launch]:
    """What starts these: the batch job, and `srun` or `mpirun` on the same command line."""
    outer = {(kind, one.place.line) for one in mine for kind in one.around}
    for launch in launches:
        if launch.kind == "sbatch" or (launch.kind, launch.place.line) in outer:
            yield launch


def started_by_torchrun(setting: Written, source: Source) -> bool:
    """Does a launch that is seen hand this setting to ranks of torchrun?"""
    launches = [one for one in source.launches if setting in one.settings]
    if setting.by == "os.environ":
        launches = list(source.started_by)  # set inside the rank: ask what starts the script
    return any(one.kind in TORCHRUN for one in launches)


def started_otherwise(setting: Written, source: Source) -> bool:
    """Is it handed to ranks that are seen, and torchrun starts none of them?"""
    kinds = {one.kind for one in source.launches if setting in one.settings} - {"sbatch"}
    # accelerate starts several processes through torchrun's own code
    return bool(kinds) and not kinds & {*TORCHRUN, "accelerate"}


# --- words --------------------------------------------------------------------------------------


def without(*settings: Setting) -> str:
    """How to be rid of them: the environment has no line to remove."""
    names = [shell_words.variable(s.name) for s in settings]
    if all(s.origin == "environment" for s in settings):
        return f"`unset {' '.join(names)}`"
    return f"remove {' and '.join(names)}"


def put(setting: Setting, name: str, value: str) -> str:
    """The assignment to write instead of this setting."""
    text = shell_words.setting(name, value)
    if shell_words.fits(value) and re.fullmatch(r"[\^=][\w,:.-]+|\$\w+|\$\{\w+\}", value):
        text = f"{shell_words.variable(name)}=" + (value if value[0] == "$" else f"'{value}'")
    return f"`export {text}`" if setting.origin == "environment" else f"`{text}`"


def renamed(setting: Setting, name: str) -> str:
    """The same value under another name."""
    if setting.origin == "environment":
        old = shell_words.variable(setting.name)
        return f"`unset {old}; export {shell_words.setting(name, setting.value)}`"
    return f"write {put(setting, name, setting.value)}"
