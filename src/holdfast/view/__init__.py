"""Draws the nouns as text and JSON; decides nothing."""
