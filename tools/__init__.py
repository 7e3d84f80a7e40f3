"""What maintainers run: docs from the code, and the long proofs."""
