"""The stored state of groups: definitions, grants, presence, history, seeks."""
