"""Tailrace on Spark: a session, and topics as a data source."""
