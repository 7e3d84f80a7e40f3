"""What the witness in each rank writes (rank/witness), one JSON object a line, as it is read back.

A file for each process: `rank-R.attempt-A.PID.jsonl`. Only what every launcher has is used, so that
a job under torchrun is measured as one under `holdfast run`.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec


class WitnessRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    t: float
    """wall seconds"""


class BeganRecord(WitnessRecord, frozen=True, kw_only=True, tag="began"):
    """torch was imported in a rank."""

    rank: int
    world: int
    attempt: int
    pid: int
    host: str


class BeforeStepsRecord(WitnessRecord, frozen=True, kw_only=True, tag="start"):
    """Just before the first step of this process."""

    weights: str
    """digest of this rank's own part of the weights; '' when they could not be read"""
    optimizer_step: int | None = None
    """steps that the optimizer has counted; 0 when it has no state yet; None when it has state and
    counts none"""
    values: tuple[float, ...] = ()
    """the same few of the weights as after every step"""
    on_gpu: bool = False
    """it had used a GPU by then"""


class StepRecord(WitnessRecord, frozen=True, kw_only=True, tag="step"):
    """A step was taken."""

    step: int
    """of this process, from 1"""
    loss: float | None = None
    """the sum of what `backward` was called on in this step; None when none was seen"""
    weights: str = ""
    """digest after the step"""
    values: tuple[float, ...] = ()
    """a few of the weights: compared with a tolerance where bits need not be the same"""
    data: int | None = None
    """sum of the digests of all samples seen since the last step, modulo 2**64: does not depend on
    their order, and the sum over all ranks does not depend on their number. None when the
    inputs could not be read"""
    samples: int = 0


class GateRecord(WitnessRecord, frozen=True, kw_only=True, tag="gate"):
    """The rank has come to where the fault is to be injected; it waits for it, or breaks itself."""

    step: int
    how: str


class SavingRecord(WitnessRecord, frozen=True, kw_only=True, tag="saving"):
    """The script began to write a checkpoint, in its main thread."""

    step: int
    """of this process, which it had taken"""


class RefusedRecord(WitnessRecord, frozen=True, kw_only=True, tag="refused"):
    """The script wanted to write outside of the drill's folder, and was refused."""

    path: str


Record = BeganRecord | BeforeStepsRecord | StepRecord | GateRecord | SavingRecord | RefusedRecord
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def decode_lines(content: bytes) -> list[Record]:
    """Every whole line; what was torn by a kill is skipped."""
    return [one for line in content.splitlines() if (one := _decoded(line)) is not None]


def _decoded(line: bytes) -> Record | None:
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return None


class RankAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One process of one rank, from its start to its end."""

    began: BeganRecord
    start: BeforeStepsRecord | None = None
    steps: tuple[StepRecord, ...] = ()
    gate: GateRecord | None = None
    refused: tuple[str, ...] = ()
    saving: tuple[SavingRecord, ...] = ()

    @staticmethod
    def of(records: list[Record]) -> RankAttempt | None:
        """None for a file without a beginning."""
        began = next((one for one in records if isinstance(one, BeganRecord)), None)
        if began is None:
            return None
        return RankAttempt(
            began=began,
            start=next((one for one in records if isinstance(one, BeforeStepsRecord)), None),
            steps=tuple(one for one in records if isinstance(one, StepRecord)),
            gate=next((one for one in records if isinstance(one, GateRecord)), None),
            saving=tuple(one for one in records if isinstance(one, SavingRecord)),
            refused=tuple(one.path for one in records if isinstance(one, RefusedRecord)),
        )

    def earlier(self, seconds: float) -> RankAttempt:
        """As if its host's clock had been right, which was so far ahead."""
        if not seconds:
            return self
        return msgspec.structs.replace(
            self,
            began=_earlier(self.began, seconds),
            start=self.start and _earlier(self.start, seconds),
            steps=tuple(_earlier(one, seconds) for one in self.steps),
            gate=self.gate and _earlier(self.gate, seconds),
            saving=tuple(_earlier(one, seconds) for one in self.saving),
        )


R = TypeVar("R", bound=WitnessRecord)


def _earlier(record: R, seconds: float) -> R:
    return msgspec.structs.replace(record, t=record.t - seconds)
