"""The clocks by whose they are: functions from a Job to Clocks.

reading.py    how a clock's value is found: a variable, a flag, a script's line, a default
frameworks.py what DeepSpeed, the Trainer and Lightning hand to torch
torch.py      store, groups, the watchdog and its monitor
transport.py  NCCL's own: sockets and RDMA
launching.py  torchrun, Horovod, holdfast run
outside.py    Slurm, `timeout`
"""
