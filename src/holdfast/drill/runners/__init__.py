"""Launchers that a drill can drive: how each is started, and what it says. One file for each."""
