"""The folder of a run: journal, report, registry of runs, bundle, redaction."""
