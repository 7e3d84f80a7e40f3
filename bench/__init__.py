"""Side-by-side measurements; each prints ratios, and absolute times only beside them."""
