"""A JOB -> RANKS -> SIGNALS -> VERDICT -> ACTION: everything `holdfast run` does."""
