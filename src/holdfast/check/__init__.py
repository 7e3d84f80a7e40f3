"""`holdfast check`: a machine -> facts -> findings."""
