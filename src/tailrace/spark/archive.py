"""A class archive for Spark's Java, with which a session starts in about half the time.

Run ``python -m tailrace.spark.archive`` once for each environment, that is for each pair of a Java
and a pyspark. A missing or stale archive only makes the start slower.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.hub.opening import open as open_hub
from tailrace.spark.cache import cache_directory
from tailrace.spark.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AOT_SINCE: Final = 25
_EXIT_TIMEOUT_S: Final = 300


def archive_path(java: Java, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the archive of this Java and this pyspark; it may not exist."""
    import pyspark

    of = f"{java.home}\0{java.version}\0{pyspark.__file__}\0{pyspark.__version__}"
    name = f"classes-{java.release}-{pyspark.__version__}-{sha256(of.encode()).hexdigest()[:12]}"
    return cache_directory(environment) / name


def use_archive_options(java: Java, path: Path) -> str:
    """Return the options with which Java uses an archive; none if it does not exist."""
    if not path.is_file():
        return ""
    if java.release >= _AOT_SINCE:
        # Java would warn of missing classes on stdout, which Spark's launcher reads.
        return f"-XX:AOTCache={path} -Xlog:disable -Xlog:all=error:stderr"
    return f"-XX:SharedArchiveFile={path} -Xlog:disable -Xlog:all=error:stderr"


def create_archive_options(java: Java, path: Path) -> str:
    """Return the options with which Java writes an archive when it exits."""
    option = "AOTCacheOutput" if java.release >= _AOT_SINCE else "ArchiveClassesAtExit"
    return f"-XX:{option}={path} -Xlog:disable -Xlog:all=error:stderr"


def create_archive(path: Path, java: Java) -> None:
    """Start Spark, load the classes that reads and pipelines need, and write the archive.

    The archive is written completely or not at all. Ends the Java of this process.
    """
    from pyspark import SparkContext

    from tailrace.spark.session import start

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="creating-") as directory:
        part = Path(directory) / path.name
        java_options = {"spark.driver.defaultJavaOptions": create_archive_options(java, part)}
        spark = start("tailrace-archive", master="local[2]", options=java_options)
        _use(spark, Path(directory))
        gateway: Any = SparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_EXIT_TIMEOUT_S)
        part.rename(path)


def _use(spark: SparkSession, directory: Path) -> None:
    """Read and write a topic in every way."""
    hub = str(directory / "hub")
    with open_hub(hub, sync="none") as opened:
        opened.create_topic("orders", partitions=2).push_many([("c7", b"{}")] * 100)
        opened.create_topic("copies", partitions=2)
    orders = {"hub": hub, "subscribe": "orders", "startingOffsets": "earliest"}
    copies = {"hub": hub, "topic": "copies", "checkpointLocation": str(directory / "copies")}
    batch = spark.read.format("tailrace").options(**orders).load()
    files = str(directory / "parquet")
    batch.selectExpr("key", "cast(value as string) as value").write.parquet(files)
    spark.read.parquet(files).groupBy("key").count().orderBy("key").collect()
    stream = spark.readStream.format("tailrace").options(**orders).load()
    writing = stream.select("key", "value").writeStream.format("tailrace").options(**copies)
    writing.trigger(availableNow=True).start().awaitTermination()
    each = stream.writeStream.foreachBatch(lambda rows, _: rows.foreach(print))
    each.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Create the archive of this environment, unless it exists."""
    java = find_java()
    path = archive_path(java)
    if not path.is_file():
        create_archive(path, java)
    print(path)


if __name__ == "__main__":
    main()
