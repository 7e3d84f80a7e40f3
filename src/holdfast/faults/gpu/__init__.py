"""Family 3: GPU and fabric."""
