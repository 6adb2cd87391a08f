"""docs/tables.md: its blocks run against a service, and give the numbers that the service gives."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import jinja2
import pytest
import yaml

from helpers.paths import ROOT
from helpers.serving import TEXT, publish, serving

PAGE = (ROOT / "docs" / "tables.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WRITTEN = "http://127.0.0.1:8400"
NAMED = TEXT.replace('"minutes"', '"aircraft"')


def blocks(language: str) -> list[str]:
    """The blocks in a language."""
    return [text for name, text in BLOCKS if name == language]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that has computed its answers."""
    folder = tmp_path_factory.mktemp("tables")
    publish(folder / "sealed", NAMED, minutes=3, partitions=1)
    with serving(folder, NAMED) as (service, client):
        deadline = time.monotonic() + 300
        while service.store.pending():
            assert time.monotonic() < deadline, "reconstruction hangs"
            time.sleep(0.05)
        yield client


@pytest.fixture(scope="module")
def wanted(site: httpx.Client) -> list[tuple[Any, Any, Any]]:
    """The series that every program is to find."""
    found = site.get("/v1/sketches/aircraft/series", params={"metric": "distinct"}).json()["points"]
    assert len(found) == 3
    return [(one["value"], one["low"], one["high"]) for one in found]


@pytest.fixture
def files(site: httpx.Client, tmp_path: Path) -> Path:
    """The tables as files in a folder."""
    for name in ("numbers", "windows"):
        body = site.get(f"/v1/tables/aircraft/{name}.parquet").raise_for_status().content
        (tmp_path / f"{name}.parquet").write_bytes(body)
    return tmp_path


@pytest.mark.parametrize("program", ["pandas", "polars", "duckdb"])
def test_each_program_reads_the_series(
    site: httpx.Client, wanted: list[Any], program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = [text for text in blocks("python") if f"import {program}" in text]
    assert WRITTEN in block
    names: dict[str, Any] = {}
    exec(compile(block.replace(WRITTEN, str(site.base_url).rstrip("/")), "tables.md", "exec"), names)
    found = names["distinct"]
    if program == "pandas":
        rows = list(found.itertuples(index=False, name=None))
        assert str(found.index.dtype).startswith("datetime64")
        assert str(found.index.tz) == "UTC"
    else:
        rows = [row[1:] for row in (found.rows() if program == "polars" else found.fetchall())]
    assert rows == wanted


def test_the_query_over_http_joins_the_tables(site: httpx.Client, wanted: list[Any], files: Path) -> None:
    """The extension of DuckDB that reads addresses comes over the network: the query runs on the same files here."""
    (block,) = blocks("sql")
    *setting, query = [one.strip() for one in block.split(";") if one.strip()]
    assert [one.split()[0] for one in setting] == ["INSTALL", "LOAD", "CREATE"]
    found = duckdb.sql(query.replace(f"{WRITTEN}/v1/tables/aircraft", str(files))).fetchall()
    assert [row[2:5] for row in found if row[1] == "distinct"] == wanted
    assert {row[1] for row in found} == {"distinct", "total"}


def test_the_model_of_dbt_is_right_for_these_tables(wanted: list[Any], files: Path) -> None:
    (sources,), (model,) = blocks("yaml"), blocks("jinja")
    (source,) = yaml.safe_load(sources)["sources"]
    location = source["config"]["external_location"]

    def find(name: str, table: str) -> str:
        assert name == source["name"]
        assert table in [one["name"] for one in source["tables"]]
        return f"'{location.format(name=table)}'".replace(f"{WRITTEN}/v1/tables/aircraft", str(files))

    query = jinja2.Environment(autoescape=False).from_string(model).render(source=find)
    assert [row[1:] for row in duckdb.sql(f"{query} ORDER BY 1").fetchall()] == wanted


def test_the_first_columns_are_those_that_the_page_names(site: httpx.Client) -> None:
    listed = {
        one["table"]: [each["name"] for each in one["columns"]] for one in site.get("/v1/tables").json()["tables"]
    }
    rows = {line.split("`")[1].removesuffix(".parquet"): line for line in PAGE.splitlines() if ".parquet` |" in line}
    assert rows.keys() == listed.keys()
    numbers = re.findall(r"`(\w+)`", rows["numbers"].rpartition("|")[0].rpartition("|")[2])
    assert numbers == listed["numbers"]
    front = re.findall(r"`(\w+)`", rows["answers"].rpartition("|")[0].rpartition("|")[2])
    assert listed["answers"][: len(front)] == front
