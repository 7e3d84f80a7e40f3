"""`holdfast run`: a job -> ranks -> scene -> verdict -> action."""
