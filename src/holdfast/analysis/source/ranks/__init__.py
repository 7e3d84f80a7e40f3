"""Which ranks reach which line, and which collectives some of them miss."""
