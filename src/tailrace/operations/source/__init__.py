"""Sources described, explained, tested, and forgotten."""
