"""`holdfast check --smoke`: a few real ranks -> which stage fails, and why."""
