"""transformers' Trainer: see test_trainers.py."""

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    logging,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback

from holdfast.integrations.transformers import TrainerCheckpoint
from tests.integrations.interrupted import digest, same_after_a_failure

logging.set_verbosity_error()
SAMPLES = torch.randint(64, (140, 16), generator=torch.Generator().manual_seed(0))
DATA = [{"input_ids": sample, "labels": sample} for sample in SAMPLES]


class Shuffled(list[Any]):
    """Data whose evaluation draws random numbers, as an evaluation's loader does."""

    def __getitem__(self, index: Any) -> Any:
        torch.rand(1)
        return super().__getitem__(index)


def train(folder: str, *, stop: bool = False, **given: Any) -> dict[str, Any]:
    set_seed(1)
    made: dict[str, Any] = {
        "output_dir": os.path.join(folder, "trainer"), "use_cpu": True, "report_to": [],
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 2,
        "save_strategy": "no", "disable_tqdm": True, "dataloader_pin_memory": False,
        "learning_rate": 0.003, "logging_steps": 4,
    }  # fmt: skip
    args = TrainingArguments(**{**made, **given})
    config = GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2,
        bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM",
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=DATA[:76],  # 19 batches of a rank in an epoch: 9 steps and a smaller one
        eval_dataset=Shuffled(DATA[128:]),
        callbacks=[EarlyStoppingCallback(1)] if stop else [],
    )
    trainer.remove_callback(PrinterCallback)
    TrainerCheckpoint(trainer, os.path.join(folder, "ckpts"), every="1h").train()
    evaluations = [
        (entry["step"], entry["eval_loss"])
        for entry in trainer.state.log_history
        if "eval_loss" in entry
    ]
    return {
        "weights": digest(model),
        "step": trainer.state.global_step,
        "evaluations": evaluations,
        "best": trainer.state.best_metric,
        "best_step": trainer.state.best_global_step,
        "epoch": trainer.state.epoch,
        "zero": trainer.state.is_world_process_zero == (args.process_index == 0),
    }


def damage(folder: Path) -> None:
    """The newest checkpoint becomes unreadable: an older one is resumed from."""
    newest = max((folder / "ckpts").glob("step-*"))
    (newest / "rank-0.safetensors").write_bytes(b"")


def steps(folder: str) -> dict[str, Any]:
    return train(folder, eval_strategy="steps", eval_steps=3, max_steps=17)


def best(folder: str) -> dict[str, Any]:
    own: dict[str, Any] = {
        "save_strategy": "steps",
        "save_steps": 3,
        "load_best_model_at_end": True,
    }
    return train(folder, eval_strategy="steps", eval_steps=3, learning_rate=0.03, **own)


def stopped(folder: str) -> dict[str, Any]:
    own: dict[str, Any] = {
        "save_strategy": "steps",
        "save_steps": 2,
        "load_best_model_at_end": True,
    }
    return train(
        folder, stop=True, eval_strategy="steps", eval_steps=2, learning_rate=0.05, **own
    )  # fmt: skip


def epochs(folder: str) -> dict[str, Any]:
    return train(folder, eval_strategy="epoch", eval_on_start=True)


if __name__ == "__main__":
    same_after_a_failure("eval-at-the-saved-step", steps, saved=6, failed=8)
    same_after_a_failure("epoch-end", epochs, saved=10, failed=12)
    same_after_a_failure("mid-epoch", epochs, saved=13, failed=15)
    same_after_a_failure("best-model", best, saved=9, failed=10)
    same_after_a_failure("early-stopping", stopped, saved=2, failed=4)
    same_after_a_failure("damaged", steps, saved=(3, 6), failed=8, between=damage)
    left = [name for name in os.listdir(tempfile.gettempdir()) if "trainer" in name]
    print(f"left behind: {left}", flush=True)
    torch.distributed.destroy_process_group()
