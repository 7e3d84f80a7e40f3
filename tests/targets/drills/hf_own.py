"""transformers' Trainer with its own checkpoints, resumed as its documentation says."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

args = TrainingArguments(
    output_dir="trainer", use_cpu=True, max_steps=24, per_device_train_batch_size=4,
    save_strategy="steps", save_steps=5, save_total_limit=2, logging_strategy="no", report_to=[],
    disable_tqdm=True, dataloader_pin_memory=False, learning_rate=0.001,
)  # fmt: skip
set_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
samples = torch.randint(64, (128, 16), generator=torch.Generator().manual_seed(0))
data = [{"input_ids": sample, "labels": sample} for sample in samples]
trainer = Trainer(model=model, args=args, train_dataset=data)
last = get_last_checkpoint("trainer") if os.path.isdir("trainer") else None
trainer.train(resume_from_checkpoint=last)
