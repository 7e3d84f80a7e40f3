"""The catalogue: one fault, one file. CONTRIBUTING.md walks through adding one."""
