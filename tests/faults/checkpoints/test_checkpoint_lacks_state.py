from __future__ import annotations

from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

TRAIN = """
import torch
from torch import optim

def main(model, args):
    optimizer = OPTIMIZER
    MORE
    for epoch in range(args.epochs):
        run(model, optimizer)
        SAVE
"""
ADAM = "optim.AdamW(model.parameters())"


def train(save: str, optimizer: str = ADAM, more: str = "pass") -> str:
    text = TRAIN.replace("SAVE", save).replace("OPTIMIZER", optimizer)
    return text.replace("MORE", more)


MODEL = '"model": model.state_dict()'
FULL = f'{MODEL}, "optimizer": optimizer.state_dict(), "epoch": epoch'
SCHEDULER = "scheduler = optim.lr_scheduler.StepLR(optimizer, 10)"
SCALER = "scaler = torch.amp.GradScaler('cuda')"
RESUME = "state = torch.load('ckpt.pt'); optimizer.load_state_dict(state['optimizer'])"

test_lint = lint_table(
    "checkpoint-lacks-state",
    flags(  # no word tells what it is for, but the count is read back
        "warning",
        python(
            train(
                f"torch.save({{{MODEL}, 'epoch': epoch}}, f'{{epoch}}.pth')",
                more="old = torch.load(args.start); first = old['epoch']",
            )
        ),
        lines=[9],
        saying=["has no optimizer"],
    ),
    leaves(  # another file's count, and nothing of this one
        python(
            train(
                f"torch.save({{{MODEL}, 'epoch': epoch}}, f'{{epoch}}.pth')",
                more="old = torch.load(args.start); first = old['tokens']",
            )
        )
    ),
    flags(  # no word tells what it is for, but why else save the optimizer?
        "warning",
        python(train(f"torch.save({{{FULL}}}, f'out/{{epoch}}.pth')", more=SCHEDULER)),
        lines=[9],
        saying=["has no scheduler"],
    ),
    flags(
        "warning",
        python(train(f"torch.save(obj={{{MODEL}, 'epoch': epoch}}, f='ckpt.pt')")),
        lines=[9],
        saying=["has no optimizer"],
    ),
    flags(
        "warning",
        python(train(f"torch.save({{{MODEL}, 'epoch': epoch}}, 'ckpt.pt')")),
        lines=[9],
        saying=["has no optimizer", '`"optimizer": optimizer.state_dict()`', "moments"],
        not_saying=["scheduler"],
    ),
    flags(
        "warning",
        python(train(f"torch.save({{{FULL}}}, f'checkpoint_{{epoch}}.pt')", more=SCHEDULER)),
        lines=[9],
        saying=["has no scheduler", "schedule starts over"],
    ),
    flags(
        "warning",
        python(
            train(
                "checkpoint = dict(model=model.state_dict()); torch.save(checkpoint, 'last.pt')",
                more=f"{SCHEDULER}; {SCALER}",
            )
        ),
        lines=[9],
        saying=["no optimizer, no scheduler, no GradScaler and no step or epoch"],
    ),
    flags(
        "note",
        python(train(f"torch.save({{{FULL}}}, 'ckpt.pt')", more=SCALER)),
        lines=[9],
        saying=["has no GradScaler"],
    ),
    flags(
        "note",
        python(train(f"torch.save({{{FULL}}}, 'ckpt.pt')", more=RESUME)),
        lines=[9],
        saying=["random number generators", "is not reproducible"],
    ),
    flags(
        "warning",
        python(
            train(
                "torch.save(model.state_dict(), 'ckpt.pt')",
                more="model.load_state_dict(torch.load('ckpt.pt'))",
            )
        ),
        lines=[9],
        saying=["holds only the weights"],
    ),
    leaves(python(train(f"torch.save({{{FULL}}}, 'ckpt.pt')"))),
    leaves(
        python(train(f"torch.save({{{FULL}, 'sched': s.state_dict()}}, 'ckpt.pt')", more=SCHEDULER))
    ),
    leaves(python(train(f"torch.save({{{MODEL}, 'epoch': epoch}}, 'best.pt')"))),
    leaves(python(train(f"torch.save({{{MODEL}, 'epoch': epoch}}, f'model_{{epoch}}.pt')"))),
    leaves(python(train("torch.save(model.state_dict(), f'checkpoint_{epoch}.pt')"))),
    leaves(python(train("pass") + f"    torch.save({{{MODEL}}}, 'checkpoint.pt')\n")),
    leaves(  # plain SGD has no state
        python(
            train(
                f"torch.save({{{MODEL}, 'epoch': epoch}}, 'ckpt.pt')",
                optimizer="torch.optim.SGD(model.parameters(), lr=0.1)",
            )
        )
    ),
    leaves(python(train(f"torch.save({{{MODEL}, **extra}}, 'ckpt.pt')"))),
    leaves(python(train("torch.save(state_of(model, optimizer), 'ckpt.pt')"))),
    leaves(
        python(
            train(
                f"state = {{{MODEL}, 'epoch': epoch}}; state['opt'] = optimizer.state_dict(); "
                "torch.save(state, 'ckpt.pt')"
            )
        )
    ),
    leaves(python(train(f"state = {{{MODEL}}}; fill(state); torch.save(state, 'ckpt.pt')"))),
    leaves(  # files of their own
        python(
            train(
                "torch.save(model.state_dict(), 'ckpt.pt'); "
                "torch.save(optimizer.state_dict(), 'ckpt_opt.pt')",
                more="model.load_state_dict(torch.load('ckpt.pt'))",
            )
        )
    ),
)
