"""Where plans are executed: in this process, or by Spark."""
