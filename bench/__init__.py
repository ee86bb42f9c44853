"""Benchmarks of Tailrace and of the alternatives its users have: `python -m bench`."""
