"""Composite topics: routing of keys, lineage of streams, producers, reads and ledgers."""
