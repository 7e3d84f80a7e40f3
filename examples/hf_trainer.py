"""The Trainer of transformers, resumed by holdfast.

    holdfast run --nproc-per-node 2 examples/hf_trainer.py

holdfast saves model, optimizer, scheduler and random numbers, and the Trainer's own record of where
it is. The model is tiny, of random weights, and the data are made up: nothing is downloaded.
"""

import hashlib
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from holdfast.integrations.transformers import TrainerCheckpoint

STEPS = 24


def train(folder: str) -> None:
    args = TrainingArguments(
        output_dir=os.path.join(folder, "trainer"), use_cpu=True, max_steps=STEPS,
        per_device_train_batch_size=4, save_strategy="no", logging_steps=8, report_to=[],
        disable_tqdm=True, dataloader_pin_memory=False, eval_strategy="steps", eval_steps=5,
        learning_rate=0.001, warmup_steps=4,
    )  # fmt: skip
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    )
    samples = torch.randint(64, (136, 16), generator=torch.Generator().manual_seed(0))
    data = [{"input_ids": sample, "labels": sample} for sample in samples]
    trainer = Trainer(model=model, args=args, train_dataset=data[:128], eval_dataset=data[128:])
    TrainerCheckpoint(trainer, os.path.join(folder, "ckpts"), every_steps=5).train()
    if args.process_index == 0:
        print(f"done at step {trainer.state.global_step}: weights {digest(model)}", flush=True)


def digest(model: torch.nn.Module) -> str:
    values = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(values).hexdigest()[:16]


if __name__ == "__main__":
    train(os.environ.get("FOLDER", "."))
