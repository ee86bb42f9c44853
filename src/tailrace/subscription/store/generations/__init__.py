"""Generations: what they read, and the steps of the change from one to the next."""
