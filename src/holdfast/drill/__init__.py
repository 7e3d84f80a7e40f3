"""`holdfast drill`: the user's own job, broken on purpose -> which promises are kept."""
