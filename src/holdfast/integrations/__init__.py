"""holdfast's checkpoints inside other people's training loops; each module needs its framework.

transformers.py  TrainerCheckpoint: any transformers.Trainer
lightning.py     CheckpointCallback, FollowedLoader: lightning.pytorch.Trainer
accelerate.py    AcceleratorCheckpoint: a loop of your own around accelerate.Accelerator
"""
