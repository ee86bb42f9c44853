"""Operators' requests on dead letters: redeliver them, or discard them."""
