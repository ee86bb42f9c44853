"""`tailrace writer`: the writers for pipelines."""

from __future__ import annotations

from tailrace.cli.pipeline.plugin_verbs import plugin_noun

writer_command = plugin_noun("writer")
