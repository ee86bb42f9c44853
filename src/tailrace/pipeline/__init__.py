"""Pipelines: a reader, functions and writers, with a commit log between and a ledger per writer."""
