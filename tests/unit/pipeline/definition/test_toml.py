"""Pipelines in TOML files: their settings, and errors named by key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace import functions as fn
from tailrace.errors import ConfigError, InvalidName, InvalidValue
from tailrace.pipeline.definition import plugins
from tailrace.pipeline.definition.checks import pipeline_definition, writer_definition
from tailrace.pipeline.definition.definition import PipelineDefinition
from tailrace.pipeline.definition.settings import CatchUp, Engine, OnError, Start
from tailrace.pipeline.definition.toml import load_pipeline
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tests.support.plugins.packages import ACME, install, make_project

MINIMAL = """
[pipeline]
name = "lake"
[reader]
type = "mbox"
path = "in.mbox"
[writer.files]
type = "folder"
directory = "out"
"""

SPECIAL = '''
from datetime import timedelta
from typing import Annotated, ClassVar
import msgspec
from msgspec import Meta
from tailrace.pipeline.writer import Writer

class Special(Writer, frozen=True):
    """Has options of every kind."""
    url: Annotated[str, Meta(description="URL of the database.", extra={"secret": True})]
    files: Annotated[list[str], Meta(extra={"path": True})] = []
    wait: timedelta = timedelta(seconds=1)
    count: Annotated[int, Meta(ge=1)] = 1
    inner: dict[str, int] = {}
    login: Annotated[dict[str, str], Meta(extra={"secret": True})] = {}
    base: str = ""
    takes_controls: ClassVar[bool] = True
    needs_spark: ClassVar[bool] = True

    def __post_init__(self):
        if self.url == "bad":
            from tailrace import InvalidValue
            raise InvalidValue("url", self.url, "another")

    def resolve_paths(self, directory):
        return msgspec.structs.replace(self, base=str(directory))
'''


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(ACME, tmp_path / "site", monkeypatch)
    entry_points = '"tailrace.writers" = { special = "special_plugin:Special" }'
    project = make_project(tmp_path / "special", "special", entry_points, SPECIAL)
    install(project, tmp_path / "more", monkeypatch)


def loaded(
    directory: Path, text: str, environ: Mapping[str, str] | None = None
) -> PipelineDefinition:
    file = directory / "pipe.toml"
    file.write_text(text)
    return load_pipeline(file, environ or {})


def refused(directory: Path, text: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the error of a file, without its name."""
    with pytest.raises(ConfigError) as caught:
        loaded(directory, text, environ)
    head, _, said = str(caught.value).partition("pipe.toml: ")
    assert head == f"{directory}/"
    return said


def special(tmp_path: Path, options: str, environ: Mapping[str, str] | None = None) -> Any:
    text = MINIMAL + f'[writer.s]\ntype = "special"\n{options}\n'
    return loaded(tmp_path, text, environ).writers[1].writer


def test_a_minimal_file_has_the_defaults(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, MINIMAL)
    reader: Any = plugins.reader("mbox")
    writer: Any = plugins.writer("folder")
    in_python = pipeline_definition(
        "lake",
        reader(str(tmp_path / "in.mbox")),
        [writer_definition("files", writer(str(tmp_path / "out")), pipeline="lake")],
    )
    assert pipeline.origin == str(tmp_path / "pipe.toml")
    assert [each.writer for each in pipeline.writers] == [each.writer for each in in_python.writers]
    assert pipeline.reader == in_python.reader
    assert pipeline.writers[0].chain == Chain(writer="lake/files")
    assert pipeline.settings.stop_timeout == timedelta(seconds=30)


def test_every_key_of_a_pipeline_and_its_writers_counts(tmp_path: Path) -> None:
    (tmp_path / "acme_shout.py").write_text("def shout(document): return document\n")
    text = MINIMAL.replace(
        'name = "lake"',
        'name = "lake"\npartitions = 4\ncatch_up = "all"\nlog_bytes_max = "1MiB"\n'
        'stop_timeout = "5s"\nprogress_interval = "100ms"\nengine = "direct"',
    )
    text += r"""
namespace = "/^mail/"
on_error = "park"
start = "latest"
batch_rows = 10
functions = [
  { omit = ["card", "a.b"] },
  { pick = "id" },
  { rename = { "a.b" = "c" }, namespace = "mails" },
  { remap = { '/^(.*)s$/' = '\1' } },
  { skip = { field = "total", operator = "<", value = 0 } },
  { opfilter = { deny = ["delete"] } },
  { pretty = {} },
  { python = "acme_shout:shout" },
]
[writer.other]
type = "folder"
directory = "/elsewhere/"
engine = "spark"
functions = [{ sql = { select = "id", where = "id > 0", schema = "id BIGINT" } }]
"""
    pipeline = loaded(tmp_path, text)
    assert (pipeline.settings.partitions, pipeline.settings.catch_up) == (4, CatchUp.ALL)
    assert pipeline.settings.log_bytes_max == 1 << 20
    assert pipeline.settings.stop_timeout == timedelta(seconds=5)
    assert pipeline.settings.progress_interval == timedelta(milliseconds=100)
    files, other = pipeline.writers
    assert (files.settings.on_error, files.engine, files.settings.start) == (
        OnError.PARK, Engine.DIRECT, Start.LATEST,
    )  # fmt: skip
    assert files.settings.batch_rows == 10
    assert files.chain == Chain(
        NamespaceFilter.parse("/^mail/"),
        (
            fn.omit("card", "a.b"),
            fn.pick("id"),
            fn.rename({"a.b": "c"}, namespace="mails"),
            fn.remap({"/^(.*)s$/": r"\1"}),
            fn.skip("total", "<", 0),
            fn.opfilter(deny=["delete"]),
            fn.pretty(),
            fn.python("acme_shout:shout", directory=str(tmp_path)),
        ),
        writer="lake/files",
    )
    assert other.engine is Engine.SPARK
    assert other.chain.functions == (fn.sql("id", "id > 0", schema="id BIGINT"),)
    assert getattr(other.writer, "directory", "") == "/elsewhere/"


def test_variables_are_taken_from_the_environment(tmp_path: Path) -> None:
    made = special(tmp_path, 'url = "x://${USER}:${PASS}@h/$${d} $x"', {"USER": "u", "PASS": "p"})
    assert made.url == "x://u:p@h/${d} $x"


def test_secrets_come_from_files_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("s3cret\n")
    assert special(tmp_path, 'url = "file:${NAME}.txt"', {"NAME": "secret"}).url == "s3cret"
    made = special(tmp_path, 'url = "x"\nlogin = { user = "u", password = "file:secret.txt" }')
    assert made.login == {"user": "u", "password": "s3cret"}


def test_paths_are_relative_to_the_file_and_urls_are_not(tmp_path: Path) -> None:
    made = special(tmp_path, 'url = "x"\nfiles = ["a/", "/b", "s3://c/d"]')
    assert made.files == [f"{tmp_path}/a/", "/b", "s3://c/d"]
    assert made.base == str(tmp_path)


def test_durations_are_written_as_everywhere(tmp_path: Path) -> None:
    assert special(tmp_path, 'url = "x"\nwait = "1m30s"').wait == timedelta(seconds=90)


def test_a_writer_that_wants_control_records_gets_them(tmp_path: Path) -> None:
    text = MINIMAL + '[writer.s]\ntype = "special"\nurl = "x"\n'
    assert [each.chain.controls for each in loaded(tmp_path, text).writers] == [False, True]


BAD_KEYS = [
    ("directory", "directorie", "writer.files.directorie: unknown · did you mean 'directory'?"),
    (
        "[writer.files]",
        '[writer.files]\non_eror = "park"',
        "writer.files.on_eror: unknown · did you mean 'on_error'?",
    ),
    (
        'name = "lake"',
        'name = "lake"\nx = 1',
        "pipeline.x: unknown · valid: name, source, partitions",
    ),
    ("[pipeline]", "[pipelines]", "pipelines: unknown · did you mean 'pipeline'?"),
    ('name = "lake"', "", "pipeline.name: missing"),
    ('directory = "out"', "", "writer.files.directory: missing"),
    ('type = "folder"', "", "writer.files.type: missing · valid: file, parquet"),
    ('"folder"', '"foldr"', "writer.files.type: no writer 'foldr' · did you mean 'folder'?"),
    ('"out"', "1", "writer.files.directory: Expected `str`, got `int`"),
    ('"lake"', '"la ke"', "pipeline: 'la ke' is not a valid pipeline name"),
    ("[writer.files]", '[writer."f/x"]', "writer.f/x: 'f/x' is not a valid writer name"),
    ("[writer.files]", "[writers]", "writers: unknown · did you mean 'writer'?"),
    ('"out"', '"${OUT}"', "writer.files.directory: the variable OUT is not set"),
    ('"out"', '"${OUT"', "writer.files.directory: ${OUT is not a variable · valid: ${NAME}"),
    ('"out"', '"${}"', "writer.files.directory: ${} is not a variable"),
]


@pytest.mark.parametrize(("old", "new", "said"), BAD_KEYS)
def test_an_invalid_value_is_named_by_its_key(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert refused(tmp_path, MINIMAL.replace(old, new)).startswith(said)


BAD_LINES = [
    ('namespace = "/(/"', "writer.files.namespace: namespace is '('"),
    ("namespace = 1", "writer.files.namespace: namespace is 1"),
    ('on_error = "x"', "writer.files.on_error: on_error is 'x' · valid: stop, stop-all, park"),
    ('engine = "x"', "writer.files.engine: engine is 'x' · valid: spark, direct"),
    ('start = "snapshot"', "writer.files.start: start is 'snapshot' · valid: earliest, latest"),
    (
        "batch_rows = 0",
        "writer.files.batch_rows: batch_rows is 0 · valid: a whole number from 1 to",
    ),
    ("functions = 1", "writer.files.functions: 1 is not a list of functions"),
    ("functions = [1]", "writer.files.functions[0]: must be a TOML table, not 1"),
    ("functions = [{}]", "writer.files.functions[0]: has 0 functions"),
    ('functions = [{ omit = "a", pick = "b" }]', "writer.files.functions[0]: has 2 functions"),
    ('functions = [{ omitt = "a" }]', "writer.files.functions[0].omitt: unknown · did you mean"),
    ("functions = [{ omit = [1] }]", "writer.files.functions[0].omit.field: field is 1"),
    (
        'functions = [{ skip = { field = "a", operator = "~" } }]',
        "writer.files.functions[0].skip.operator: operator is '~' · valid: ==",
    ),
    (
        'functions = [{ skip = { field = "a", op = "<" } }]',
        "writer.files.functions[0].skip.op: unknown · valid: field, operator, value",
    ),
    (
        'functions = [{ skip = { field = "a" } }]',
        "writer.files.functions[0].skip.operator: missing",
    ),
    (
        'functions = [{ skip = { field = "a", operator = "=~", value = "(" } }]',
        "writer.files.functions[0].skip.value: value is '('",
    ),
    (
        "functions = [{ rename = { a.b = 'c' } }]",
        'writer.files.functions[0].rename.a: is a table · write a path in quotes: "a.b"',
    ),
    (
        "functions = [{ rename = 1 }]",
        "writer.files.functions[0].rename: must be a TOML table, not 1",
    ),
    (
        "functions = [{ python = 'nowhere:f' }]",
        "writer.files.functions[0].python: nowhere:f: nowhere cannot be imported",
    ),
    (
        "functions = [{ omit = 'a', namespace = '/(/' }]",
        "writer.files.functions[0].omit.namespace: namespace is '('",
    ),
    (
        "engine = 'direct'\nfunctions = [{ sql = { schema = 'a INT' } }]",
        "writer.files.engine: engine is 'direct' · valid: spark · the function sql needs it",
    ),
]


@pytest.mark.parametrize(("lines", "said"), BAD_LINES)
def test_an_invalid_value_of_a_writer_is_named_by_its_key(
    tmp_path: Path, lines: str, said: str
) -> None:
    assert refused(tmp_path, f"{MINIMAL}{lines}\n").startswith(said)


BAD_OPTIONS = [
    ('url = "bad"', "writer.s.url: url is 'bad' · valid: another"),
    ('url = "file:nothing"', "writer.s.url: cannot read the secret"),
    ('url = "x"\ncount = 0', "writer.s.count: Expected `int` >= 1"),
    ('url = "x"\nwait = "soon"', "writer.s.wait: wait is 'soon'"),
    ('url = "x"\ninner = { a = "b" }', "writer.s.inner[...]: Expected `int`, got `str`"),
    ('url = "x"\nengine = "direct"', "writer.s.engine: engine is 'direct' · valid: spark"),
]


@pytest.mark.parametrize(("lines", "said"), BAD_OPTIONS)
def test_an_invalid_option_of_a_plugin_is_named_by_its_key(
    tmp_path: Path, lines: str, said: str
) -> None:
    text = f'{MINIMAL}[writer.s]\ntype = "special"\n{lines}\n'
    assert refused(tmp_path, text).startswith(said)


def test_a_plugin_cannot_have_an_option_that_pipelines_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = SPECIAL.replace("base: str", "start: str").replace("special", "greedy")
    entry_points = '"tailrace.writers" = { greedy = "greedy_plugin:Special" }'
    project = make_project(tmp_path / "greedy", "greedy", entry_points, module)
    install(project, tmp_path / "third", monkeypatch)
    said = refused(tmp_path, MINIMAL.replace('"folder"', '"greedy"'))
    assert said.startswith(
        "writer.files.type: Special has the option start · reserved for the pipeline: type,"
    )


def test_a_file_that_is_missing_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pipe.toml cannot be read: No such file"):
        load_pipeline(tmp_path / "pipe.toml")
    (tmp_path / "pipe.toml").write_text("[")
    with pytest.raises(ConfigError, match=r"pipe.toml is not TOML"):
        load_pipeline(tmp_path / "pipe.toml")


def test_the_same_values_are_refused_in_python() -> None:
    folder: Any = plugins.writer("folder")
    writer = folder("out")
    with pytest.raises(InvalidValue, match="engine is 'direct' · valid: spark"):
        writer_definition(
            "a", writer, pipeline="p", engine="direct", functions=[fn.sql(schema="a INT")]
        )
    with pytest.raises(InvalidValue, match=r"functions of tailrace.functions"):
        writer_definition("a", writer, pipeline="p", functions=[len])  # type: ignore[list-item]
    with pytest.raises(InvalidValue, match=r"one of tailrace.writers"):
        writer_definition("a", "out", pipeline="p")  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        writer_definition("a" * 101, writer, pipeline="p")
    defined = writer_definition("a", writer, pipeline="p")
    mbox: Any = plugins.reader("mbox")
    with pytest.raises(InvalidValue, match="each name once"):
        pipeline_definition("p", mbox("in"), [defined, defined])
    with pytest.raises(InvalidValue, match="one writer or more"):
        pipeline_definition("p", mbox("in"), [])
    with pytest.raises(InvalidValue, match=r"one of tailrace.readers"):
        pipeline_definition("p", writer, [defined])


def test_spark_settings_may_have_quotes_or_not_and_values_of_any_kind(tmp_path: Path) -> None:
    table = """
[pipeline.spark]
spark.executor.memory = "${MEMORY}"
spark.ui.enabled = false
"spark.cores.max" = 8
[reader]"""
    text = MINIMAL.replace("\n[reader]", table)
    assert loaded(tmp_path, text, {"MEMORY": "2g"}).settings.spark == {
        "spark.executor.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.cores.max": "8",
    }


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('executor.memory = "2g"', "pipeline.spark: executor.memory is '2g' · valid: names that"),
        ('"spark." = 1', "pipeline.spark: spark. is 1 · valid: names that begin with spark."),
        ("spark.jars = [1]", r"pipeline.spark: spark.jars is \[1\] · valid: text, a number, true"),
    ],
)
def test_a_spark_setting_that_is_not_valid_is_named(tmp_path: Path, line: str, error: str) -> None:
    with pytest.raises(ConfigError, match=f"pipe.toml: {error}"):
        loaded(tmp_path, MINIMAL.replace("\n[reader]", f"\n[pipeline.spark]\n{line}\n[reader]"))
