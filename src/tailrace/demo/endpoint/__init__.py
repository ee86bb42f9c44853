"""The second act of the demo: orders are posted to an HTTP endpoint that fails."""
