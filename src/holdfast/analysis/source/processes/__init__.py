"""Child processes and devices of a script: how they start, what they share, which GPU they use."""
