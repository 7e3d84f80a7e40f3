"""Launch scripts in any language: counts, addresses, ports, containers, limits."""
