"""Composite topics: where a key goes, what a stream follows, and how producers write."""
