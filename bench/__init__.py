"""How fast Tailrace is, beside what its users would take instead: `python -m bench`."""
