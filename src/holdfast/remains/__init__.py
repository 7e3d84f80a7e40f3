"""What is left of a job: the nouns, and the wordings that many faults share.

signature  a wording of torch, NCCL, Gloo, a launcher or the kernel, and the part it plays
nouns      Line, Sighting, Raised, Exit, RankRemains, Wreckage: frozen, no I/O, no judgement
clocks     torch's watchdog, heartbeat monitor, barriers and stores: who waited, and for what
peers      words of a rank that lost another one: never a cause
launchers  what torchrun, DeepSpeed, accelerate, Slurm… say of the ends they saw
starters, start_checks   what keeps a launcher or scheduler from starting anything
ways       connections that did not come about, as the store, Gloo, NCCL, MPI and ssh tell it
nccl       NCCL's own log: which rank is which process, how far each came
kernel     the kernel's log, and schedulers that speak for it
"""
