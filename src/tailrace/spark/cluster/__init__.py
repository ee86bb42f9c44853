"""The cluster a Spark session runs on: its settings, its master, its executors."""
