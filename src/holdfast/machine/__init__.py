"""A machine -> facts: one reader per kind of fact, each in its own process with a deadline."""
