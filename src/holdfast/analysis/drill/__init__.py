"""A fault injected on purpose: what is done, what its ranks reported, which promises were kept."""
