"""What `holdfast env` is asked about; its answers are in analysis/variables/status.py."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.analysis.machine import MachineFacts, Setting, Software
from holdfast.analysis.source.source import Launch
from holdfast.analysis.variables import nccl_groups
from holdfast.findings import Place


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A timeout that a script gives."""

    call: str
    """'init_process_group', 'new_group', 'TCPStore', 'TrainingArguments'…"""
    seconds: float | None
    """None: only known when it runs"""
    place: Place
    backend: str = ""
    """'nccl', 'gloo'…; 'none' where the call names none, 'several' for 'cpu:gloo,cuda:nccl'; ''
    when that is only known when it runs"""
    given: bool = True
    """False: the call gives none, and the default counts"""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of the job before it runs."""

    facts: MachineFacts
    launches: tuple[Launch, ...] = ()
    """of the command line; of `srun torchrun …` the outer one first"""
    asked: tuple[Asked, ...] = ()
    frameworks: frozenset[str] = frozenset()
    """top-level packages that the script imports; empty where no script was read"""
    script: str = ""
    """the script that was read; '' when none was"""
    time_limit: float | None = None
    """seconds that `timeout N` allows, in front of the command"""
    wall: float = 0.0
    """now, seconds since 1970"""
    typed: Mapping[str, str] = {}
    """variables that the command or its launch script sets: name -> 'command line' or
    'launch.sh:3'; to the programs they are part of the environment"""

    def setting(self, name: str) -> Setting | None:
        return self.facts.setting(name)

    @property
    def software(self) -> Software | None:
        return self.facts.software if isinstance(self.facts.software, Software) else None

    @property
    def has_nccl(self) -> bool:
        """Whether NCCL can be used at all; where torch is not installed here, it is elsewhere."""
        software = self.software
        if software is None or not software.torch:
            return True
        return bool(software.torch_cuda or software.nccl)

    def version(self, package: str) -> str:
        """Of 'torch', 'nccl' or a framework; '' when it is not known."""
        software = self.software
        if software is None:
            return ""
        if package == "nccl":
            return software.nccl[0].version if software.nccl else ""
        return software.torch if package == "torch" else software.packages.get(package, "")

    @property
    def newer_nccl_groups(self) -> bool:
        switch = self.setting(nccl_groups.SWITCH)
        return nccl_groups.are_newer(self.version("torch"), switch.value if switch else "")

    def origin(self, setting: Setting) -> str:
        return self.typed.get(setting.name, setting.origin)
