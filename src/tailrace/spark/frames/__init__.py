"""Topics as Spark frames, planned by the driver: faster than the data source `tailrace`."""
