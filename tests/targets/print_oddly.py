"""Prints what a careless copy would change: no end of line, \\r, bytes that are no UTF-8."""

import os

os.write(1, b"bar 1\rbar 2\r\xff\xfe caf\xc3\xa9\r\n")
os.write(2, b"complaint\n")
os.write(1, f"rank {os.environ['LOCAL_RANK']} ends without a newline".encode())
