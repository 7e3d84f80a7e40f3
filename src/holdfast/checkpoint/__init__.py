"""A STEP -> PROOF -> RESUME: state that survives, and resumes that are proven.

    tree.py       any state dict <-> tensors and a typed tree of the rest
    state.py      `holdfast.State`: everything a run is made of
    generators.py the random number generators of a rank
    staging.py    the only stall: tensors copied into memory shared with the writer
    writer.py     a process of its own that writes what was staged (no torch)
    files.py      the few file operations of the protocol, so that a test can stop after each
    commit.py     stage -> fsync -> manifest -> fsync -> rename -> fsync
    choose.py     which checkpoint counts, which is set aside, which may go
    timing.py     when a save is due; decided once, announced for a later step
    save.py       `holdfast.Checkpoint`: ties them together
    resume.py     the newest that verifies, on every rank the same
    compare.py    is the resumed run the same run?
    sharded.py    FSDP2 and DTensor, through torch.distributed.checkpoint
    sampler.py    `holdfast.Sampler`: an order that no world size changes
    cadence.py    how often to save: Young and Daly

Only state, generators, staging, sharded, save and resume may import torch.
"""
