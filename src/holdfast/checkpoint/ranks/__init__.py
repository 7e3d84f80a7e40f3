"""Do all ranks hold the same state? Compared once, in the first steps, before anything is saved."""
