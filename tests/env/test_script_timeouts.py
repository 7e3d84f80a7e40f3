"""The timeouts that a script gives itself."""

from __future__ import annotations

import pytest

from tests.env.made_jobs import a_job

IMPORTS = "import torch.distributed as dist\nfrom datetime import timedelta\n"


@pytest.mark.parametrize(
    ("line", "call", "seconds", "backend", "given"),
    [
        ("dist.init_process_group('nccl')", "init_process_group", None, "nccl", False),
        ("dist.init_process_group()", "init_process_group", None, "none", False),
        ("dist.init_process_group(device_id=d)", "init_process_group", None, "", False),
        ("dist.init_process_group(backend=args.b)", "init_process_group", None, "", False),
        ("dist.init_process_group(**options)", "init_process_group", None, "", True),
        ("dist.init_process_group('cpu:gloo,cuda:nccl')", "init_process_group", None, "several",
         False),
        ("dist.init_process_group('gloo', timeout=timedelta(hours=2))", "init_process_group",
         7200.0, "gloo", True),
        ("dist.init_process_group(timeout=args.t)", "init_process_group", None, "none", True),
        ("dist.new_group([0], timeout=timedelta(0, 30))", "new_group", 30.0, "", True),
        ("dist.TCPStore('a', 1, timeout=timedelta(seconds=5))", "TCPStore", 5.0, "", True),
    ],
)  # fmt: skip
def test_asked(line: str, call: str, seconds: float | None, backend: str, given: bool) -> None:
    (one,) = a_job(text=IMPORTS + line).asked
    assert (one.call, one.seconds, one.backend, one.given) == (call, seconds, backend, given)
    assert one.place.line == 3


def test_a_name_is_followed() -> None:
    job = a_job(
        text=IMPORTS + "LONG = timedelta(minutes=45)\ndist.init_process_group(timeout=LONG)"
    )
    assert job.asked[0].seconds == 2700


def test_the_trainer_and_what_is_imported() -> None:
    job = a_job(
        text="""
        from transformers import Trainer, TrainingArguments
        import lightning.pytorch as pl
        arguments = TrainingArguments("out", ddp_timeout=7200)
        """
    )
    assert [(one.call, one.seconds) for one in job.asked] == [("TrainingArguments", 7200)]
    assert job.frameworks == {"transformers", "lightning"}
