"""The requests of operators on dead letters: made, stored, read and audited."""
