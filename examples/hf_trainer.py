"""The Trainer of transformers, resumed by holdfast.

    holdfast run --nproc-per-node 2 examples/hf_trainer.py

holdfast saves model, optimizer, scheduler and random numbers, and the Trainer's own notes of where
it is. `Keeper` and `ResumingTrainer` are all that is needed; copy them. The model is tiny, of
random weights, and the data are made up: nothing is downloaded.
"""

import dataclasses
import hashlib
import os
import tempfile
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
    get_linear_schedule_with_warmup,
    set_seed,
)

import holdfast

STEPS = 24


class Keeper(TrainerCallback):
    """Saves what the Trainer trains; `resume` gives it back, before `train`."""

    def __init__(self, folder: str, trainer: Trainer, *, every_steps: int) -> None:
        self.place = TrainerState()
        self.random_numbers: torch.Tensor | None = None
        parts = {"optimizer": trainer.optimizer, "scheduler": trainer.lr_scheduler}
        state = holdfast.State(model=trainer.model, place=self, **parts)
        self.ckpt = holdfast.Checkpoint(folder, state, every_steps=every_steps)
        trainer.add_callback(self)

    def resume(self) -> str | None:
        """For `train(resume_from_checkpoint=…)`: a folder that tells the Trainer where it was."""
        if self.ckpt.resume() == 0:
            return None
        # In the middle of an epoch the Trainer starts its loader again, which draws a number that
        # the run had drawn before. At the end of an epoch the run draws it now.
        if not self.place.epoch.is_integer():
            self.random_numbers = torch.get_rng_state()
        folder = tempfile.mkdtemp(prefix="trainer-")
        self.place.save_to_json(os.path.join(folder, "trainer_state.json"))
        return folder

    def on_train_begin(self, _: Any, state: TrainerState, *__: Any, **___: Any) -> None:
        self.place = state

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self.random_numbers is not None:
            torch.set_rng_state(self.random_numbers)
            self.random_numbers = None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ckpt.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.ckpt.close()

    def state_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self.place)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.place = TrainerState(**saved)


class ResumingTrainer(Trainer):
    def _load_from_checkpoint(self, *_: Any, **__: Any) -> None:
        """`Keeper.resume` has restored the weights; there are none in the folder it names."""


def train(folder: str) -> None:
    args = TrainingArguments(
        output_dir=os.path.join(folder, "trainer"), use_cpu=True, max_steps=STEPS,
        per_device_train_batch_size=4, save_strategy="no", logging_steps=8, report_to=[],
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    )
    # Given to the Trainer, and not left to it: what is restored must be there before it begins.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    scheduler = get_linear_schedule_with_warmup(optimizer, 4, STEPS)
    samples = torch.randint(64, (128, 16), generator=torch.Generator().manual_seed(0))
    trainer = ResumingTrainer(
        model=model,
        args=args,
        train_dataset=[{"input_ids": sample, "labels": sample} for sample in samples],
        optimizers=(optimizer, scheduler),
    )
    keeper = Keeper(os.path.join(folder, "ckpts"), trainer, every_steps=5)
    trainer.train(resume_from_checkpoint=keeper.resume())
    if args.process_index == 0:
        print(f"done at step {trainer.state.global_step}: weights {digest(model)}", flush=True)


def digest(model: torch.nn.Module) -> str:
    values = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(values).hexdigest()[:16]


if __name__ == "__main__":
    train(os.environ.get("FOLDER", "."))
