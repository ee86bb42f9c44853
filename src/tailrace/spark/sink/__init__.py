"""Writing Spark rows to topics: executors stage, the driver commits.

A task checks its rows and turns them into Arrow bytes (`task_rows`). Small ones travel inside the
commit message, large ones as a file in a directory that all share (`staging`). When all tasks have
succeeded, the driver appends the rows of all in one transaction of the hub (`commit`), together
with the number of the write (`stored_writes`), which a stream has in its checkpoint (`checkpoint`).
"""

from __future__ import annotations

from tailrace.spark.sink.writers import BatchWriter, StreamWriter

__all__ = ["BatchWriter", "StreamWriter"]
