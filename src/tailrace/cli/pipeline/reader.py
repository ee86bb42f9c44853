"""`tailrace reader`: the readers for pipelines."""

from __future__ import annotations

from tailrace.cli.pipeline.plugin_verbs import plugin_noun

reader_command = plugin_noun("reader")
