"""What happens to one lab host: it is lost, never comes, or was set up otherwise than the rest."""

from __future__ import annotations

from holdfast.analysis.drill.network_acts import (
    BreakName,
    KeepAway,
    LoseHost,
    ShiftClock,
    TypeOnHost,
)
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.lab import LabUnavailableError
from holdfast.drill.lab_stage import host_of, start_where_none_runs
from holdfast.drill.stage import CannotInjectHere, Stage


@carries_out(LoseHost)
class HostLossCarrier(Carrier):
    def inject(self, act: LoseHost, stage: Stage) -> None:
        host = host_of(stage, act.host)
        stage.lost.add(act.host)
        if act.power:
            host.power_off()
        else:
            host.cut()
        stage.release()

    def lift(self, act: LoseHost, stage: Stage) -> None:
        host_of(stage, act.host).restore()
        stage.lost.discard(act.host)
        start_where_none_runs(stage, [act.host])


@carries_out(KeepAway)
class AbsenceCarrier(Carrier):
    def prepare(self, act: KeepAway, stage: Stage) -> None:
        host_of(stage, act.host)
        stage.absent.add(act.host)

    def lift(self, act: KeepAway, stage: Stage) -> None:
        stage.absent.discard(act.host)
        start_where_none_runs(stage, [act.host])


@carries_out(BreakName)
class NameCarrier(Carrier):
    def prepare(self, act: BreakName, stage: Stage) -> None:
        host_of(stage, act.host).resolves(act.name, act.address or None)

    def lift(self, act: BreakName, stage: Stage) -> None:
        host_of(stage, act.host).resolves_as_before(act.name)


@carries_out(ShiftClock)
class ClockCarrier(Carrier):
    def prepare(self, act: ShiftClock, stage: Stage) -> None:
        try:
            host_of(stage, act.host).clock(act.seconds)
        except LabUnavailableError as problem:
            raise CannotInjectHere(str(problem)) from problem
        stage.folder.clock_ahead[act.host] = act.seconds
        stage.checks_first = True


@carries_out(TypeOnHost)
class HostSettingCarrier(Carrier):
    def prepare(self, act: TypeOnHost, stage: Stage) -> None:
        host_of(stage, act.host)
        stage.environment_on[act.host] = dict(act.environment)
        stage.flags_on[act.host] = list(act.flags)
        stage.checks_first = True

    def lift(self, act: TypeOnHost, stage: Stage) -> None:
        stage.environment_on.pop(act.host, None)
        stage.flags_on.pop(act.host, None)
