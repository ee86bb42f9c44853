"""Making the data source known to a session, and planning each query anew. For the user's process.

Spark finds the source by its name only if the `python3` that it starts has Tailrace. It plans the
source once for each loaded DataFrame, forgets the options of tables, and reads by Python unless it
has the jar of the native reader. Registration helps with all four.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark.frames.native import add_native_jar, prepare_rows
from tailrace.spark.source import TailraceSource
from tailrace.spark.worker_python import choose_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILTER_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""The setting by which Spark passes filters to Python data sources."""

_CONNECT_PLANS: Final = "spark.connect.session.planCache.enabled"
"""The setting by which a Spark Connect server keeps the plans of DataFrames."""

_LOG: Final = logging.getLogger(__name__)
_CLASS: Final = "tailrace.session.TopicTables"
_SOURCE_FILE: Final = "TopicTables.java"


def register(spark: SparkSession) -> None:
    """Make ``format("tailrace")`` known to a session, also where Spark does not find it by itself.

    Python processes that read topics then run the Python of this process, unless PYSPARK_PYTHON or
    ``spark.pyspark.python`` names another one. Each query plans its reads when it starts, with its
    own filters, and tables of CREATE TABLE keep their options. The session gets the native reader.
    A second call changes nothing. Over Spark Connect, each query plans its reads when it starts
    too; the rest depends on the server.
    """
    context: Any = getattr(spark, "_sc", None)
    if context is None:
        spark.dataSource.register(TailraceSource)
        spark.conf.set(_CONNECT_PLANS, "false")
        return
    with _chosen_python(context):
        spark.dataSource.register(TailraceSource)
    plan_each_query(spark)
    add_native_jar(spark)
    prepare_rows(spark)


def plan_each_query(spark: SparkSession) -> None:
    """Let each query of a session plan its reads when it starts, and let Spark pass its filters.

    Without this, all queries of a DataFrame read what the first one found. Logs a warning if this
    version of Spark cannot do it.
    """
    session: Any = spark._jsparkSession
    extensions = session.extensions()
    if _CLASS in str(extensions.buildOptimizerRules(session).mkString(" ")):
        return
    try:
        extensions.injectOptimizerRule(_compile(spark))
    except Exception as error:
        reason = str(error).partition("\n\tat ")[0]
        _LOG.warning("queries of one DataFrame read what the first one found: %s", reason)
        return
    spark.conf.set(FILTER_PUSHDOWN, "true")


def _compile(spark: SparkSession) -> Any:
    """Return the builder of the optimizer rule, compiled by the compiler that Spark includes."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(files(__package__).joinpath(_SOURCE_FILE).read_text(encoding="utf-8"))
    gateway: Any = spark.sparkContext._gateway
    maker = compiler.getClassLoader().loadClass(_CLASS)
    constructor = maker.getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))


@contextmanager
def _chosen_python(context: Any) -> Iterator[None]:
    """Let functions that are registered in the block run the user's choice, or this Python."""
    before = context.pythonExec
    context.pythonExec = choose_python(dict(context.getConf().getAll()), os.environ).program
    try:
        yield
    finally:
        context.pythonExec = before
