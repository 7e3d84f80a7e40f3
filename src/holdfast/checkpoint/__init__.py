"""`holdfast.Checkpoint`: a step -> proof -> resume."""
