"""The native reader: a jar that reads the files of a plan in Java, in columns.

`tailrace.spark.read` and the data source `tailrace` use it if the jar is on the class path of the
Spark session. Importing this module does not import Spark.
"""

from __future__ import annotations

import base64
import logging
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tailrace.spark.ranges import ReadRange

PLAN_VERSION: Final = 1
"""The version of the plans that this module writes; the jar has the same number."""

SWITCH: Final = "spark.tailrace.native"
"""The setting of a session that turns the native reader off, if it is ``false``. `TopicTables.java`
has the same name."""

_LOG: Final = logging.getLogger(__name__)
_SOURCE: Final = "tailrace.spark.TopicSource"
JARS: Final = "spark.jars"
_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">II")
_RANGE: Final = struct.Struct(">iiqqI")


def native_jar_path() -> Path:
    """Return the path of the jar, for the setting ``spark.jars`` of a session."""
    return Path(__file__).with_name("tailrace-spark.jar")


def with_native_jar(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session that is not started yet, with the jar beside others."""
    ours = str(native_jar_path())
    others = [jar for jar in settings.get(JARS, "").split(",") if jar and not jar.endswith(ours)]
    return {**settings, JARS: ",".join([*others, ours])}


def add_native_jar(spark: SparkSession) -> None:
    """Add the jar to a running session that has none. Its executors load it with their next task.

    Logs a warning if Spark cannot add it: then Python reads.
    """
    path = native_jar_path()
    # An archive of `--py-files` has the jar within it, where Java finds none.
    if _jar_version(spark) is not None or not path.is_file():
        return
    try:
        spark.sql(f"ADD JAR {_quoted(path)}")
    except Exception as error:
        reason = str(error).partition("\n")[0]
        _LOG.warning("Python reads topics, because the native reader was not added: %s", reason)


def has_native_reader(spark: SparkSession) -> bool:
    """True if the session has the jar, the jar reads the plans of this module, and `SWITCH` is
    not ``false``."""
    from pyspark.sql.utils import is_remote

    if is_remote() or str(spark.conf.get(SWITCH, "true")).lower() == "false":
        return False
    return _jar_version(spark) == PLAN_VERSION


def _jar_version(spark: SparkSession) -> int | None:
    """Return the version of the plans that the jar of a session reads; None without a jar.

    Each thread of Python has one of Java, and Spark adds a jar only to the classes of the thread
    that adds it. So this thread gets the classes of added jars too.
    """
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    thread = jvm.java.lang.Thread.currentThread()
    added = session.sharedState().jarClassLoader()
    for loader in (thread.getContextClassLoader(), added):
        try:
            version = int(loader.loadClass(_SOURCE).getField("PLAN_VERSION").get(None))
        except Py4JError:
            continue
        thread.setContextClassLoader(loader)
        return version
    return None


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def prepare_rows(spark: SparkSession) -> None:
    """Let the native reader make rows where a query needs whole rows, if the session has its jar.

    Without this it makes columns, of which Spark makes rows: slower, but with the same result.
    Logs a warning if this version of Spark cannot do it. A second call changes nothing.
    """
    if _jar_version(spark) == PLAN_VERSION:
        _install_rows(spark)


def _install_rows(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    try:
        jvm.tailrace.spark.RowScans.install(spark._jsparkSession)
    except Exception as error:
        reason = str(error).partition("\n\tat ")[0]
        _LOG.warning("the native reader makes only columns: %s", reason)


def native_frame(
    spark: SparkSession, ranges: Sequence[ReadRange], schema: StructType, *, include_control: bool
) -> DataFrame:
    """Return a frame of ranges that the native reader reads; `has_native_reader` must be true."""
    _install_rows(spark)
    reader = spark.read.format(_SOURCE).schema(schema)
    control = str(include_control).lower()
    plan = base64.b64encode(pack_plan(ranges)).decode()
    return reader.option("plan", plan).option("includeControl", control).load()


def pack_plan(ranges: Sequence[ReadRange]) -> bytes:
    """Return ranges as the native reader takes them; `ReadRange.java` describes the form."""
    parts = [_HEAD.pack(PLAN_VERSION, len(ranges))]
    for (topic, storage, number), start, end, extents in ranges:
        parts += [*_sized(topic.encode()), _RANGE.pack(storage, number, start, end, len(extents))]
        for extent in extents:
            parts += [*_sized(extent.log_path.encode()), *_sized(extent.entries)]
    return b"".join(parts)


def _sized(data: bytes) -> tuple[bytes, bytes]:
    return _LENGTH.pack(len(data)), data
