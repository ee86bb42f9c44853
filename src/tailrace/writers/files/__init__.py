"""The writers of files: `file` (JSON lines, in `json_lines`) and `parquet`.

Both subclass `staged_writer.StagedWriter`: they write staged files, which are moved into place when
their plan is sealed. `destination` is the directory, on disk or in an object store.
"""
