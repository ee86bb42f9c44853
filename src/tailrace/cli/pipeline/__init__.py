"""The commands about pipelines: `tailrace pipeline`, `reader` and `writer`."""
