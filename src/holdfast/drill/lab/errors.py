"""Errors of the lab: something does not work, or none can be built here."""

from __future__ import annotations


class LabUnavailableError(Exception):
    """No lab can be built here; the sentence says why."""


class LabError(Exception):
    """The lab was asked for what it cannot do."""
