"""A class archive for Spark's Java: with it a session starts in about half the time.

Run ``python -m tailrace.spark.archive`` once for each environment, that is each pair of a Java and
a pyspark. A missing or stale archive costs nothing but the time it would have saved.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.hub import open as open_hub
from tailrace.spark.cache import cache_directory
from tailrace.spark.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AOT_SINCE: Final = 25
_EXIT_TIMEOUT_S: Final = 300


def archive_path(java: Java, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the archive of this Java and this pyspark is, or would be."""
    import pyspark

    of = f"{java.home}\0{java.version}\0{pyspark.__file__}\0{pyspark.__version__}"
    name = f"classes-{java.release}-{pyspark.__version__}-{sha256(of.encode()).hexdigest()[:12]}"
    return cache_directory(environment) / name


def using(java: Java, path: Path) -> str:
    """The options with which Java starts from an archive; none where there is none."""
    if not path.is_file():
        return ""
    if java.release >= _AOT_SINCE:
        # Classes that the archive lacks would be warned of on stdout, which Spark's launcher reads.
        return f"-XX:AOTCache={path} -Xlog:disable -Xlog:all=error:stderr"
    return f"-XX:SharedArchiveFile={path} -Xlog:disable -Xlog:all=error:stderr"


def making(java: Java, path: Path) -> str:
    """The options with which Java writes an archive when it exits."""
    option = "AOTCacheOutput" if java.release >= _AOT_SINCE else "ArchiveClassesAtExit"
    return f"-XX:{option}={path} -Xlog:disable -Xlog:all=error:stderr"


def make(path: Path, java: Java) -> None:
    """Start Spark, let it load what readings and pipelines need, and keep that, whole or not at
    all. Ends the Java of this process."""
    from pyspark import SparkContext

    from tailrace.spark.session import start

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="making-") as directory:
        part = Path(directory) / path.name
        java_options = {"spark.driver.defaultJavaOptions": making(java, part)}
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
    """Make the archive of this environment, unless it is there."""
    java = find_java()
    path = archive_path(java)
    if not path.is_file():
        make(path, java)
    print(path)


if __name__ == "__main__":
    main()
