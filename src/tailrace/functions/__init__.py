"""The functions of pipelines: they change documents between a reader and a writer::

    from tailrace import functions as fn
    lake.write("crm", writers.sql("…"), functions=[fn.omit("card"), fn.skip("total", "<", 0)])

Every function takes `namespace`, a filter on the namespace that a row has after the functions
before. Rows that the filter does not match pass unchanged, as control records always do. `Function`
is the contract of a function; `python` makes one of an ordinary Python function.
"""

from __future__ import annotations

from tailrace.functions.fields import omit, pick
from tailrace.functions.opfilter import opfilter
from tailrace.functions.pretty import pretty
from tailrace.functions.python import python
from tailrace.functions.remap import remap
from tailrace.functions.rename import rename
from tailrace.functions.skip import skip
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import Document, RowError, Rows
from tailrace.pipeline.transform.sql import sql

__all__ = [
    "Document",
    "Function",
    "NamespaceFilter",
    "RowError",
    "Rows",
    "omit",
    "opfilter",
    "pick",
    "pretty",
    "python",
    "remap",
    "rename",
    "skip",
    "sql",
]
