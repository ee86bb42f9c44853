"""The settings of a session, and the master in Spark's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.spark.cluster.defaults import default_setting
from tailrace.spark.cluster.settings import CORES_MAX, ignored_settings, session_settings


def settings(configured: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    return session_settings("lake", configured, given, 4, {"spark.x": "of this user"})


def test_a_session_has_the_master_that_spark_is_configured_with_and_else_a_local_one() -> None:
    assert settings({}, {})["spark.master"] == "local[*,4]"
    configured = {"spark.master": "spark://10.0.0.7:7077"}
    assert settings(configured, {})["spark.master"] == "spark://10.0.0.7:7077"
    assert settings(configured, {"spark.master": "local[2]"})["spark.master"] == "local[2,4]"
    assert settings({}, {"spark.master": "local[2,1]"})["spark.master"] == "local[2,1]"
    assert settings({}, {"spark.master": "local"})["spark.master"] == "local[1,4]"


def test_given_settings_replace_configured_ones_and_both_replace_our_defaults() -> None:
    configured = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.executor.memory": "1g"}
    merged = settings(configured, {"spark.executor.memory": "2g"})
    assert merged["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert merged["spark.executor.memory"] == "2g"
    assert merged["spark.app.name"] == "lake"
    assert settings({}, {})["spark.sql.session.timeZone"] == "UTC"


def test_the_web_page_of_spark_is_not_switched_off() -> None:
    assert "spark.ui.enabled" not in settings({}, {})
    assert settings({"spark.ui.enabled": "false"}, {})["spark.ui.enabled"] == "false"


def test_a_session_takes_a_limited_number_of_cores_of_a_standalone_cluster() -> None:
    cluster = {"spark.master": "spark://10.0.0.7:7077"}
    assert settings(cluster, {})["spark.cores.max"] == str(CORES_MAX)
    assert settings(cluster | {"spark.cores.max": "32"}, {})["spark.cores.max"] == "32"
    assert "spark.cores.max" not in settings({}, {})


def test_a_session_uses_the_loopback_only_if_its_workers_are_on_this_host() -> None:
    assert settings({}, {})["spark.driver.host"] == "127.0.0.1"
    beside = settings({"spark.master": "spark://127.0.0.1:7077"}, {})
    assert beside["spark.driver.host"] == "127.0.0.1"
    remote = settings({"spark.master": "spark://10.0.0.7:7077"}, {})
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & remote.keys()


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]", "local-cluster[2,1,1024]"])
def test_workers_that_the_driver_starts_have_the_settings_of_its_user(master: str) -> None:
    assert settings({}, {"spark.master": master})["spark.x"] == "of this user"


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://localhost:7077", "yarn"])
def test_workers_of_a_cluster_may_have_another_user_also_on_this_host(master: str) -> None:
    assert "spark.x" not in settings({}, {"spark.master": master})


def test_settings_that_an_existing_session_does_not_have_are_named() -> None:
    actual = {"spark.master": "local[2]", "spark.executor.memory": "1g"}
    given = {"spark.executor.memory": "1g", "spark.master": "yarn"}
    assert ignored_settings(given, actual) == ["spark.master=yarn"]


@pytest.mark.parametrize(
    ("line", "master"),
    [
        ("spark.master spark://10.0.0.7:7077", "spark://10.0.0.7:7077"),
        ("spark.master = yarn", "yarn"),
        ("#spark.master yarn", ""),
        ("spark.masters yarn", ""),
    ],
)
def test_the_master_of_spark_defaults_is_read(tmp_path: Path, line: str, master: str) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.executor.memory 1g\n{line}\n")
    assert default_setting("spark.master", {"SPARK_CONF_DIR": str(tmp_path)}) == master


def test_there_may_be_no_spark_defaults(tmp_path: Path) -> None:
    assert default_setting("spark.master", {"SPARK_HOME": str(tmp_path)}) == ""
