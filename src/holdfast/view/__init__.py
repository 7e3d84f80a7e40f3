"""Text and JSON for people and programs; draws, decides nothing."""
