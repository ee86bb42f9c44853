"""Plug-ins and fixtures for the tests of pipelines; Spark's workers import them too."""
