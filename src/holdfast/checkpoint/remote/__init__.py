"""Copies in an object store: uploaded after the commit, fetched when there is none here."""
