"""Shared groups: who consumes what."""
