"""A Gloo job: every attempt forms the group and sums; some ranks then end as told.

sum_ranks.py [RANK=CODE …]      in the first attempt only
"""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(
    f"attempt {attempt} rank {dist.get_rank()} sum {total.item():.0f} "
    f"of {os.environ['TORCHELASTIC_MAX_RESTARTS']} {os.environ.get('DRESSED', 'plain')}"
)
told = dict(argument.split("=") for argument in sys.argv[1:])
if attempt == "0" and (code := told.get(str(dist.get_rank()))):
    os._exit(int(code))
if attempt == "0" and told:
    dist.recv(total, src=int(next(iter(told))))  # never comes: ended by a signal, or an error
dist.destroy_process_group()
