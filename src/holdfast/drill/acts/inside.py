"""What the witness does inside the rank itself."""

from __future__ import annotations

from holdfast.analysis.drill.injection import BreakInside
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import Stage


@carries_out(BreakInside)
class InsideCarrier(Carrier):
    def prepare(self, act: BreakInside, stage: Stage) -> None:
        stage.order(act.how, act.seconds)

    def inject(self, act: BreakInside, stage: Stage) -> None:
        """The rank has obeyed its order; a further attempt gets one of its own."""
        rank = stage.rehearsal.rank
        obeyed = sum(one.gate is not None for one in stage.attempts() if one.began.rank == rank)
        if obeyed < act.times:
            stage.order(act.how, act.seconds)

    def lift(self, act: BreakInside, stage: Stage) -> None:  # noqa: ARG002
        stage.release()  # a slow rank is as fast as before
