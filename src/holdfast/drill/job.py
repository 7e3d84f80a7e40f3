"""One job of a drill: started, broken, watched, perhaps started again, ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.outcome import Happened, Observed
from holdfast.analysis.drill.progress import happens_now
from holdfast.drill import launching
from holdfast.drill.acts.registry import Carrier, carrier_of
from holdfast.drill.launching import JobCommand
from holdfast.drill.leftovers import SHM, JobLeftovers
from holdfast.drill.stage import Stage
from holdfast.drill.written_files import WrittenFiles

EVERY = 0.05
"""seconds between two looks"""
LOOK_EVERY = 2.0
"""seconds between two looks at what the job's processes hold"""
LEFT_AFTER = 10.0
"""seconds after its end in which a job may still come apart"""
LIFTED_UNNAMED = 60.0
"""seconds after which a fault is taken away although it was not named"""
STARTS = 2
AGAIN = (Then.ENDS, Then.GIVES_UP, Then.REFUSES)
"""what a job is started again after"""

Tell = Callable[[str], None]


class DrillJob:
    """From its first start to its last end."""

    def __init__(
        self, stage: Stage, command: JobCommand, injection: Injection | None, *, longest: float,
        tell: Tell,
    ) -> None:  # fmt: skip
        """`longest`: seconds that one start may take before it is ended."""
        self._stage, self._command, self._injection = stage, command, injection
        self._longest, self._tell = longest, tell
        self._carrier: Carrier | None = carrier_of(injection.act) if injection else None
        if injection:
            stage.fewest_hosts = injection.fewest_hosts
            if injection.join_timeout:
                stage.rendezvous["join_timeout"] = f"{injection.join_timeout:g}"
        stage.start_launcher = lambda host: launching.start_one(stage, command, host)
        shared_memory = {name: host.path(SHM) for name, host in stage.hosts.items()}
        self._leftovers = JobLeftovers(stage.folder.witness, stage.folder.tmp, shared_memory)
        self._starts: list[float] = []
        self._codes: list[int | None] = []
        self._injected: float | None = None
        self._lifted: float | None = None
        self._listing: tuple[tuple[str, int, float], ...] = ()
        self._written = WrittenFiles(stage.folder)
        self._happened: list[Happened] = []
        self._looked = 0.0

    def run(self) -> Observed:
        """May raise CannotInjectHere. Whatever happens, nothing of the job is left."""
        try:
            if self._injection and self._carrier:
                self._carrier.prepare(self._injection.act, self._stage)
            self._start()
            while self._goes_on():
                time.sleep(EVERY)
            ended = time.time()
            launching.reap(self._stage)
            left = self._leftovers.found(seconds=LEFT_AFTER)
        finally:
            launching.kill(self._stage)
            problems = self._stage.undo()
        return self._observed(ended, (*left, *(f"not undone: {one}" for one in problems)))

    # --- while it runs ---------------------------------------------------------------------------

    def _start(self) -> None:
        self._starts.append(time.time())
        again = " again" * (len(self._starts) > 1)
        self._note("start", f"started{again}")
        launching.start(self._stage, self._command)
        if self._injection and not self._stage.rehearsal.at_step and self._injected is None:
            self._inject()

    def _goes_on(self) -> bool:
        """One look; False when the job is over."""
        now = time.time()
        if now - self._looked > LOOK_EVERY:
            self._looked = now
            self._leftovers.look()
            self._say_progress()
        if not self._injection:
            self._written.look()
        if self._is_due():
            self._inject()
        if self._is_to_be_lifted():
            self._lift()
        if launching.all_ended(self._stage):
            codes = launching.exit_codes(self._stage)
            counted = {host: code for host, code in codes.items() if host not in self._stage.lost}
            self._codes.append(launching.combined(counted))
            return self._starts_again()
        if now - self._starts[-1] > self._longest:
            self._tell(f"did not end within {self._longest:.0f} s: ending it")
            launching.kill(self._stage)
            self._codes.append(None)
            return False
        return True

    def _inject(self) -> None:
        assert self._injection
        assert self._carrier
        self._leftovers.look()
        self._listing = self._stage.folder.listing()
        self._injected = self._stage.broke_itself() or time.time()
        self._carrier.inject(self._injection.act, self._stage)
        self._note("fault", self._injection.does)

    def _is_due(self) -> bool:
        return bool(self._injection) and self._injected is None and self._stage.at_the_gate()

    def _is_to_be_lifted(self) -> bool:
        """Once it was named; not by a host that is cut off, which can only say what it misses.
        Where it is not named, as under another launcher, it does not last for ever either."""
        if not self._injection or not self._injection.lifted or self._lifted is not None:
            return False
        since = self._stage.injected or self._injected
        heard = self._command.runner.heard(self._stage.folder)
        right = ("", *self._injection.slugs, *self._injection.blameless)
        if since is None:
            return False
        named = any(one.t >= since and one.slug in right for one in heard.spoken)
        return named or time.time() - since > LIFTED_UNNAMED

    def _lift(self) -> None:
        assert self._injection
        assert self._carrier
        self._carrier.lift(self._injection.act, self._stage)
        self._lifted = time.time()
        self._note("lifted", "taken away again")

    def _starts_again(self) -> bool:
        """As a scheduler would, where the rehearsal is that the run ends."""
        then = self._injection.then if self._injection else None
        wanted = then in AGAIN or (then is Then.RECOVERS and self._codes[-1] not in (0, None))
        if not wanted or self._injected is None or len(self._starts) == STARTS:
            return False
        if self._lifted is None:
            self._lift()
        launching.reap(self._stage)
        self._stage.lost.clear()
        self._start()
        return True

    def _say_progress(self) -> None:
        heard = self._command.runner.heard(self._stage.folder)
        self._tell(
            happens_now(
                self._stage.attempts(),
                heard.spoken,
                self._stage.rehearsal.job,
                injected=self._stage.injected or self._injected,
                now=time.time(),
            )
        )

    def _note(self, kind: str, what: str) -> None:
        self._happened.append(Happened(t=time.time(), what=what, kind=kind))  # type: ignore[arg-type]
        self._tell(what)

    # --- afterwards ------------------------------------------------------------------------------

    def _observed(self, ended: float, left: tuple[str, ...]) -> Observed:
        heard = self._command.runner.heard(self._stage.folder)
        injected = self._stage.injected or self._injected
        before = [step for t, step, _ in heard.saved if injected is None or t <= injected]
        return Observed(
            attempts=tuple(self._stage.attempts()),
            starts=tuple(self._starts),
            exit_codes=tuple(self._codes),
            injected=injected,
            lifted=self._lifted,
            ended=ended,
            said=heard.spoken,
            happened=(*self._happened, *heard.happened),
            saved=tuple(sorted(set(before))),
            listing=self._listing if self._injection else self._written.listing(),
            left=left,
            folder=str(self._stage.folder.path),
        )
