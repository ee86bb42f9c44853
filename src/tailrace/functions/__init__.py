"""The functions of pipelines: what is done to documents between a reader and a writer::

    from tailrace import functions as fn
    lake.write("crm", writers.sql("…"), functions=[fn.omit("card"), fn.skip("total", "<", 0)])

Each takes `namespace`, a filter of its own on the namespace that a row has by then; rows that it
does not match pass unchanged. Control records pass all functions untouched.
"""

from __future__ import annotations

from tailrace.functions.fields import omit, pick
from tailrace.functions.opfilter import opfilter
from tailrace.functions.pretty import pretty
from tailrace.functions.python import python
from tailrace.functions.remap import remap
from tailrace.functions.rename import rename
from tailrace.functions.skip import skip
from tailrace.pipeline.sql import sql

__all__ = ["omit", "opfilter", "pick", "pretty", "python", "remap", "rename", "skip", "sql"]
