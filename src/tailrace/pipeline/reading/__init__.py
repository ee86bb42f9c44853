"""Reading the source of a pipeline into its commit log, and holding the reader up."""
