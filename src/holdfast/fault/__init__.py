"""A fault: one thing that goes wrong, with a stable name, and what we can do about it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.analysis.drill.injection import CannotInject, Injection
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import CouldNotLook, MachineFacts
from holdfast.analysis.machine.smoke_failures import ErrorMeaning, SmokeFailure
from holdfast.analysis.nodes import Node, NodesFacts
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source
from holdfast.analysis.variables.status import Effect
from holdfast.fault.answers import SHOWN, Answers
from holdfast.fault.traits import RunTraits
from holdfast.findings import Diagnosis, Finding, Place, Verdict

__all__ = ["FACES", "SHOWN", "Broken", "Fault", "RunTraits"]

CheckFace = Callable[[MachineFacts], Finding | Sequence[Finding]]
NodesFace = Callable[[NodesFacts], Finding | Sequence[Finding]]
Refutation = Callable[[NodesFacts, Node], bool]
LintFace = Callable[[Source], Iterable[Finding]]
PythonFace = Callable[[Program, Source], Iterable[Finding]]
RunFace = Callable[[Scene], Verdict | None]
ExplainFace = Callable[[Wreckage], Diagnosis | None]
DrillFace = Callable[[Rehearsal], Injection | CannotInject]
Need = Literal["hosts", "gpu"]

READABLE_FACTS = frozenset(MachineFacts.__struct_fields__) - {"plan", "host"}
"""what a check face may need; the plan and the host's name cost nothing and are always there"""

FACES = {
    "check": "facts of a machine, or of all nodes -> findings",
    "lint": "what a user wrote -> findings",
    "run": "the scene of a running job -> verdict",
    "explain": "what is left of a job -> diagnosis",
    "drill": "a job to rehearse on -> what is done to it, and what must become of it",
}
"""Every face a fault can have: the verb that asks it, and what it makes of what."""


class Broken(NamedTuple):
    """A face that raised: a bug in holdfast, which must not end a healthy job nor stay unsaid."""

    slug: str
    face: str
    problem: str
    """'KeyError: 3'"""
    too_deep: bool = False
    """what it was given is nested deeper than Python can follow"""

    def __str__(self) -> str:
        return f"a bug in holdfast, {self.slug} ({self.face}): {self.problem}"


class Drill(NamedTuple):
    """One way to inject a fault on purpose."""

    name: str
    """'rank-killed', 'checkpoint-corrupt/truncated'"""
    face: DrillFace
    needs: tuple[Need, ...]
    """several lab hosts, a GPU"""
    quick: bool
    """one of the few that `holdfast drill --quick` tries"""
    at_start: bool = False
    """the fault is there before the job is started"""


class Fault(Answers):
    """One thing that goes wrong, with a stable code and slug, and what we can do about it.

    A file under `faults/` makes one, decorates its faces with it, and builds findings
    from it, so that code and slug are written once.
    """

    def __init__(
        self,
        *,
        code: str,
        slug: str,
        traits: RunTraits | None = None,
        related: Sequence[str] = (),
        setting_effect: Effect | None = None,
        smoke_fix: str = "",
        gpus_only: bool = False,
    ) -> None:
        """Args:
        traits: what `run` must know of it; goes with a run face
        related: slugs of faults that are easily confused with it
        setting_effect: the effect of a setting that has this fault, as `env` shows it
        smoke_fix: what to do when a smoke test fails by it, where its page says less
        gpus_only: a job that uses no GPU is not hurt by it; `run` cannot know that before the
            start, so it says what it found and starts
        """
        if not re.fullmatch(r"HOLD[1-9]\d\d", code):
            raise ValueError(f"fault code {code!r} is not HOLD and three digits")
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", slug):
            raise ValueError(f"fault slug {slug!r} is not words-with-dashes")
        self.code = code
        self.slug = slug
        self.traits = traits
        self.related = tuple(related)
        self.setting_effect = setting_effect
        self.smoke_fix = smoke_fix
        self.gpus_only = gpus_only
        self.check_faces: list[CheckFace] = []
        self.check_needs: dict[CheckFace, frozenset[str]] = {}
        self.nodes_faces: list[NodesFace] = []
        self.refutations: list[Refutation] = []
        self.lint_faces: list[LintFace] = []
        self.run_faces: list[RunFace] = []
        self.explain_faces: list[ExplainFace] = []
        self.drills: list[Drill] = []
        self.log_patterns: list[LogPattern] = []
        self.error_meanings: list[ErrorMeaning] = []
        self.smoke_failures: set[SmokeFailure] = set()

    # --- faces, named by the verb that asks them -------------------------------------------------

    def check(self, *, needs: Iterable[str]) -> Callable[[CheckFace], CheckFace]:
        """Register a pure function from the facts of a machine to findings.

        `needs` names the fields of MachineFacts that it asks for, so that `check --only` reads
        nothing else; the plan and the host's name are always there and are not named.
        """
        wanted = frozenset(needs)
        if unknown := sorted(wanted - READABLE_FACTS):
            raise ValueError(f"{self.slug} needs {', '.join(unknown)}, which is no fact to be read")

        def register(face: CheckFace) -> CheckFace:
            self.check_faces.append(face)
            self.check_needs[face] = wanted
            return face

        return register

    def check_nodes(self, face: NodesFace) -> NodesFace:
        """Register a pure function from the facts of all nodes to findings.

        A finding about one node has its name in `host`; one about a path names both ends in its
        summary. What one machine alone can tell belongs in a `check` face: every node asks it.
        """
        self.nodes_faces.append(face)
        return face

    def refuted_by_nodes(self, question: Refutation) -> Refutation:
        """Register a pure question: does what all nodes saw refute what a node alone had to guess?

        What its check face said on that node is then left out.
        """
        self.refutations.append(question)
        return question

    def lint(self, face: LintFace) -> LintFace:
        """Register a pure function from a piece of source to findings, each with its place."""
        self.lint_faces.append(face)
        return face

    def lint_python(self, face: PythonFace) -> PythonFace:
        """Register a lint face that needs a Python program; it is not asked of anything else."""

        @functools.wraps(face)
        def ask(source: Source) -> Iterable[Finding]:
            return face(source.program, source) if source.program is not None else ()

        self.lint_faces.append(ask)
        return face

    def run(self, face: RunFace) -> RunFace:
        """Register a pure function from the scene of a running job to a verdict, or None."""
        if self.traits is None:
            raise ValueError(f"{self.slug} has a run face, so it needs traits=RunTraits(…)")
        self.run_faces.append(face)
        return face

    def explain(self, face: ExplainFace) -> ExplainFace:
        """Register a pure function from the wreckage of a job to a diagnosis, or None."""
        self.explain_faces.append(face)
        return face

    def drill(
        self,
        variant: str = "",
        *,
        needs: Sequence[Need] = (),
        quick: bool = False,
        at_start: bool = False,
    ) -> Callable[[DrillFace], DrillFace]:
        """Register a pure function that says how to inject this fault, and what must become of the
        job. A fault that can be injected in several ways has a variant for each further one."""
        name = f"{self.slug}/{variant}" if variant else self.slug

        def register(face: DrillFace) -> DrillFace:
            self.drills.append(Drill(name, face, tuple(needs), quick, at_start))
            return face

        return register

    def log_pattern(
        self,
        name: str,
        pattern: str,
        *,
        anchors: str | tuple[str, ...],
        example: str,
        role: Role = Role.ROOT,
    ) -> LogPattern:
        """Register a line that logs are searched for; see analysis/logs/pattern.py."""
        made = LogPattern(
            name=f"{self.slug}: {name}",
            pattern=pattern,
            anchors=(anchors,) if isinstance(anchors, str) else anchors,
            example=example,
            role=role,
            slug=self.slug,
        )
        self.log_patterns.append(made)
        return made

    def errno(self, number: int, words: str, *, nccl_before: str = "") -> None:
        """In a smoke test this errno means this fault."""
        self.error_meanings.append(
            ErrorMeaning(words, self.slug, number=number, nccl_before=nccl_before)
        )

    def error_text(self, pattern: str, words: str) -> None:
        """In a smoke test an error with this text means this fault, whatever errno is in it."""
        self.error_meanings.append(ErrorMeaning(words, self.slug, pattern=pattern))

    @property
    def needs(self) -> frozenset[str]:
        """Every fact that its check faces ask for."""
        return frozenset().union(*self.check_needs.values())

    @property
    def faces(self) -> tuple[str, ...]:
        has = {verb for verb in FACES if verb != "drill" and getattr(self, f"{verb}_faces")}
        has |= {"drill"} if self.drills else set()
        return tuple(
            verb for verb in FACES if verb in has or (verb == "check" and self.nodes_faces)
        )

    # --- asking them: never raises ---------------------------------------------------------------

    def ask_check(self, facts: MachineFacts) -> list[Finding]:
        """Every finding of this fault on this machine; never empty where it has a check face."""
        found = self._findings(self.check_faces, facts)
        return [msgspec.structs.replace(f, host=facts.host) for f in found]

    def ask_nodes(self, facts: NodesFacts) -> list[Finding]:
        """Every finding of this fault about all nodes and the paths between them."""
        return self._findings(self.nodes_faces, facts)

    def is_refuted(self, facts: NodesFacts, node: Node) -> bool:
        """A question that raises refutes nothing."""
        try:
            return any(self._ask(question, facts, node) is True for question in self.refutations)
        except CouldNotLook:
            return False

    def _findings(self, faces: Iterable[Callable[[Any], Any]], facts: object) -> list[Finding]:
        found: list[Finding] = []
        for face in faces:
            try:
                answer = self._ask(face, facts)
            except CouldNotLook as gap:
                answer = self.skipped(gap.why)
            if isinstance(answer, Broken):
                answer = self.skipped(str(answer))
            found.extend([answer] if isinstance(answer, Finding) else answer)
        # Two faces that miss the same fact would say the same thing twice.
        return list(dict.fromkeys(found))

    def ask_lint(self, source: Source) -> list[Finding]:
        """Every finding of this fault in this piece of source."""
        found: list[Finding] = []
        for face in self.lint_faces:
            answer = self._ask(face, source, then=list)
            if isinstance(answer, Broken):
                at = Place(file=source.file, line=1)
                why = "it is nested too deeply for this check" if answer.too_deep else str(answer)
                answer = [msgspec.structs.replace(self.skipped(why), place=at)]
            found.extend(answer)
        return list(dict.fromkeys(found))

    def ask_run(self, scene: Scene) -> Iterator[Verdict | Broken]:
        """What each run face says of this scene, where it says anything."""
        answers = (self._ask(face, scene) for face in self.run_faces)
        return (answer for answer in answers if answer is not None)

    def ask_explain(self, wreckage: Wreckage) -> Iterator[Diagnosis | Broken]:
        """What each explain face makes of this wreckage, where it makes anything of it."""
        answers = (self._ask(face, wreckage) for face in self.explain_faces)
        return (answer for answer in answers if answer is not None)

    def ask_drill(self, drill: Drill, rehearsal: Rehearsal) -> Injection | CannotInject:
        """How to inject it in that job, with what the face left to be filled in."""
        if "hosts" in drill.needs and len(rehearsal.job.hosts) < 2:
            return CannotInject("needs several hosts: --hosts 2")
        answer: Injection | CannotInject | Broken = self._ask(drill.face, rehearsal)
        if isinstance(answer, Broken):
            return CannotInject(str(answer))
        if isinstance(answer, CannotInject):
            return answer
        culprits = (rehearsal.rank,) if answer.culprits is None else answer.culprits
        slugs = answer.slugs or (self.slug,)
        return msgspec.structs.replace(answer, slugs=slugs, culprits=culprits)

    def _ask(
        self, face: Callable[..., Any], *seen: object, then: Callable[[Any], Any] = lambda a: a
    ) -> Any:
        """One broken face must not hide the others."""
        try:
            return then(face(*seen))
        except CouldNotLook:
            raise
        except Exception as bug:  # noqa: BLE001 - whatever it is, it is reported as what it is
            name = str(getattr(face, "__name__", face))
            too_deep = isinstance(bug, RecursionError)
            return Broken(self.slug, name, f"{type(bug).__name__}: {bug}", too_deep)
