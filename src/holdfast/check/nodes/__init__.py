"""`holdfast check` on several machines: every node looks at itself, then at the others."""
