"""The splits that a source begins with: what each copies, and who may read it."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.unit.readers.file.followed_files import lines
from tests.unit.readers.file.read_splits import ReadSplits


def test_only_ranges_are_read_by_any_task(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(*range(50)))
    (tmp_path / "b.jsonl").write_text(lines(1))
    source = ReadSplits(tmp_path / "*", range_bytes=100, namespace="all")
    source.read_copies()
    free = [split.id for split in source.splits.values() if split.bound is None]
    bound = [split.id for split in source.splits.values() if split.bound == "files"]
    assert free == source.ranges
    assert [each.partition(":")[0] for each in bound] == [
        "discover", "whole", "copy", "watch", "follow", "follow"
    ]  # fmt: skip


def test_splits_name_the_namespace_that_they_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(*range(50)))
    (tmp_path / "b.jsonl").write_text(lines(1))
    source = ReadSplits(tmp_path / "*", range_bytes=100)
    source.read_copies()
    found = {split.id: split.namespace for split in source.splits.values() if split.namespace}
    names = dict.fromkeys(source.ranges, "a")
    follows = {f"follow:1:{tmp_path}/a.jsonl": "a", f"follow:2:{tmp_path}/b.jsonl": "b"}
    assert found == names | {"copy:a": "a", "copy:b": "b"} | follows


def test_nothing_is_divided_unless_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines(*range(50)))
    source = ReadSplits(tmp_path / "*")
    assert list(source.splits) == ["discover", "copy:a", "watch"]
    assert source.splits["copy:a"].follows == ()


def test_only_large_files_of_a_format_that_can_be_divided_are_divided(tmp_path: Path) -> None:
    content = lines(*range(100))
    (tmp_path / "large.jsonl").write_text(content)
    (tmp_path / "small.jsonl").write_text(lines(1))
    (tmp_path / "exact.jsonl").write_bytes(b" " * 199 + b"\n")
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(random.randbytes(9000)))
    (tmp_path / "table.csv").write_text("n\n" * 200)
    (tmp_path / "damaged.parquet").write_bytes(b"x" * 900)
    pq.write_table(pa.table({"n": range(9)}), tmp_path / "one.parquet")
    source = ReadSplits(tmp_path / "*", range_bytes=200)
    size = len(content)
    assert source.ranges == [
        f"range:{start}:{tmp_path}/large.jsonl" for start in range(0, size, 200)
    ]
    assert "copy:one" in source.splits


def test_copies_and_ranges_expect_about_as_many_rows_as_there_are(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.jsonl").write_text(lines(*range(100_000, 130_000)))
    (tmp_path / "e.jsonl").write_text(lines(1, 2))
    (tmp_path / "last.jsonl").write_text('{"n":1}')
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"n\n1\n"))
    pq.write_table(pa.table({"n": range(321)}), tmp_path / "t.parquet")
    pattern = tmp_path / "*"
    expected = {
        split.namespace: split.rows_expected for split in ReadSplits(pattern).splits.values()
    }
    counts = {name: expected[name] for name in "abcd"}
    assert all(count is not None and abs(count - 30_000) < 10 for count in counts.values())
    assert expected == {"": None, **counts, "e": 2, "last": 1, "empty": 0, "packed": None, "t": 321}
    divided = ReadSplits(tmp_path / "*.jsonl", range_bytes=50_000, namespace="all")
    found = [divided.splits[each].rows_expected or 0 for each in divided.ranges]
    assert abs(sum(found) - 120_000) < 10
    assert max(found) == 3846
    assert divided.splits["whole:all"].rows_expected == 3
    assert divided.splits["copy:all"].rows_expected == 0


def test_the_copy_of_a_namespace_follows_all_that_copy_a_part_of_it(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(lines(*range(50)))
    (tmp_path / "c.jsonl").write_text(lines(1))
    source = ReadSplits(tmp_path / "*", range_bytes=100, namespace="all")
    assert source.splits["copy:all"].follows == (*source.ranges, "whole:all")
    source.read(*source.ranges)
    assert source.completed == []
    source.read("whole:all")
    assert source.splits[f"follow:3:{tmp_path}/c.jsonl"].follows == ("copy:all",)
    assert source.completed == []
    source.read("copy:all")
    assert source.completed == [b'{"rows":101}']
