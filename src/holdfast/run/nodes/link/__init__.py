"""Connections between the launchers of one run and its coordinator: a thread that moves messages.

The agent's thread asks for news and hands over what is to be sent; nothing it calls here blocks.
"""
