"""Writing to a sink: plans, attempts, the ledger of a writer."""
