"""A STEP -> PROOF -> RESUME: state that survives, and resumes that are proven.

    tree.py       any state dict <-> tensors and a typed tree of the rest
    state.py      `holdfast.State`: everything a run is made of
                  generators.py of random numbers; ddp_buckets.py the order of DDP's sums
    staging.py    the only stall: tensors copied into memory shared with the writer
                  copying.py by all cores
    writer.py     a process of its own that writes what was staged (no torch)
    files.py      the few file operations of the protocol, so that a test can stop after each
    commit.py     stage -> fsync -> manifest -> fsync -> rename -> fsync
    choose.py     which checkpoint counts, which is set aside, which may go
    timing.py     when a save is due; decided once, announced for a later step
    announce.py   the board where rank 0 announces and the others call: the job's store
    grace.py      SIGTERM: save and end, within the grace time
    lock.py       one job writes into a folder
    save.py       `holdfast.Checkpoint`: ties them together
    scribe.py     one rank's side of a save; pending.py the one in flight; outcome.py what is said
    direct.py     a save without a copy, where memory is short
    resume.py     the newest that verifies, on every rank the same
    compare.py    is the resumed run the same run?
    sharded.py    FSDP2 and DTensor, through torch.distributed.checkpoint
                  sharded_plan.py who writes what; sharded_tree.py names; sharded_load.py back
    sampler.py    `holdfast.Sampler`: an order that no world size changes
                  order.py a permutation by key; shares.py who takes what; cursor.py the place;
                  gradient_sync.py; stateful_loader.py for torchdata's loader
    cadence.py    how often to save: Young and Daly

Which files import torch: tests/test_torch_stays_out.py.
"""
