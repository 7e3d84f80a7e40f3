"""What the witness does inside the rank itself."""

from __future__ import annotations

from holdfast.analysis.drill.injection import BreakInside
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import Stage


@carries_out(BreakInside)
class InsideCarrier(Carrier):
    def prepare(self, act: BreakInside, stage: Stage) -> None:
        stage.order(act.how, act.seconds)
