"""A reader, functions, writers: each writer with a ledger of its own."""
