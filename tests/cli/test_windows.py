"""All windows of a sketch at once: `ss.windows` in Python, and one report for `profile --all --html`."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY
from sketchstream.cli.windows_report import WindowsReport
from sketchstream.query.answers import ProfileAnswer

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")

HOUR = 3_600_000
START = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp() * 1000)
CONFIG = EVENTS_FILE + "close_at_end = true" + SEALED_DIRECTORY
SKETCH = (
    '[[sketch]]\nname = "{name}"\nunit = "event"\nwindow = "1h"\nepsilon = "30"\nmax_count = {most}\n'
    "domain = {{ size = 60 }}\n"
)


def count(run: Run, folder: Path, hours: int, sketches: str) -> Path:
    """Hour h holds h + 1 items; the first of them occurs three times."""
    records = [
        {"ts": START + hour * HOUR + 120_000 + number, "user": max(number - 2, 0)}
        for hour in range(hours)
        for number in range(hour + 3)
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (folder / "c.toml").write_text(CONFIG + sketches)
    result = run("worker", "-c", "c.toml")
    assert result.code == 0, result.err
    return folder / "c.toml"


@pytest.fixture
def config(run: Run, tmp_path: Path) -> Path:
    return count(run, tmp_path, 4, SKETCH.format(name="hourly", most=20))


def test_windows_are_one_object_each_with_a_profile(config: Path) -> None:
    found = ss.windows(config)
    assert isinstance(found, ss.Windows)
    assert len(found) == 4
    assert [round(one.profile().distinct.value) for one in found] == [1, 2, 3, 4]
    last = found[-1]
    assert isinstance(last, ss.Window)
    assert last.start == datetime(2013, 1, 1, 3, tzinfo=UTC)
    assert last.end == datetime(2013, 1, 1, 4, tzinfo=UTC)
    assert (last.complete, last.status, last.intervals) == (True, "complete", True)
    assert last.facts["sketch"] == "hourly"
    assert isinstance(last.published, ss.Release)
    assert last.profile() is last.profile()
    assert [one.start.hour for one in found[1:3]] == [1, 2]
    assert "hourly: 2, 2013-01-01T01:00:00+00:00 to 2013-01-01T03:00:00+00:00" in repr(found[1:3])
    assert "complete" in repr(last)


def test_the_table_has_the_numbers_that_are_asked_for(run: Run, config: Path) -> None:
    usual = run("profile", "-c", config, "--all").out
    assert re.search(r"window +partitions +distinct +at least 2 +at least 10 +mean", usual)
    table = run("profile", "-c", config, "--all", "--number", "at_least.3", "--number", "exactly.1").out
    assert re.search(r"window +partitions +at least 3 +exactly 1\n", table)
    rows = [line for line in table.splitlines() if line.startswith("2013-")]
    found = [re.findall(r"([-\d.e]+) \[", row) for row in rows]
    assert [[round(float(one)) for one in row] for row in found] == [[1, hour] for hour in range(4)]
    beyond = run("profile", "-c", config, "--all", "--number", "at_least.900").out
    assert len(re.findall(r"complete +-\n", beyond)) == 4
    for name, said in (("counts", "must be one number"), ("people", "unknown number"), ("at_least.x", "")):
        wrong = run("profile", "-c", config, "--all", "--number", name)
        assert wrong.code == 2, wrong.err
        assert said in wrong.complaint
    for more, said in (
        (("--all", "--format", "json"), "--number chooses columns of a table, and --format json has every number"),
        (("--all", "--by", "group", "--format", "csv"), "and --format csv has every number"),
        (("--from", "2013-01-01T03:00Z"), "--number chooses columns of the table of --all or --by group"),
    ):
        wrong = run("profile", "-c", config, "--number", "distinct", *more)
        assert said in wrong.complaint


def test_numbers_that_a_sketch_does_not_tell_are_explained(run: Run, config: Path) -> None:
    beyond = run("profile", "-c", config, "--all", "--number", "at_least.900", "--number", "distinct")
    (note,) = [line for line in beyond.err.splitlines() if "at_least" in line]
    assert note.startswith("sketchstream: at_least.900 is '-' where nothing was counted, or where counts above ")
    assert "is '-'" not in run("profile", "-c", config, "--all").err


def test_no_window_in_a_range_is_said(run: Run, config: Path) -> None:
    for arguments in (
        ("--all",),
        ("--all", "--format", "json"),
        ("--all", "--format", "csv"),
        ("--all", "--html", "p.html"),
    ):
        done = run("profile", "-c", config, "--from", "2014-01-01T00:00Z", *arguments)
        assert (done.code, done.out) == (0, ""), done.err
        assert "no window of sketch hourly is published in that range" in done.err
    assert run("profile", "-c", config, "--merge", "--from", "2014-01-01T00:00Z").code == 1


def test_a_range_may_be_dates_in_the_zone_of_the_sketch(run: Run, config: Path) -> None:
    whole = run("profile", "-c", config, "--all").out
    assert run("profile", "-c", config, "--all", "--from", "2013-01-01", "--to", "2013-01-02").out == whole
    assert "no window" in run("profile", "-c", config, "--all", "--to", "2013-01-01").err
    text = config.read_text()
    config.write_text(text.replace('name = "hourly"', 'name = "hourly"\ntimezone = "America/New_York"'))
    assert len(re.findall("2013-", run("profile", "-c", config, "--all", "--from", "2013-01-01").out)) == 0
    assert len(re.findall("2013-", run("profile", "-c", config, "--all", "--from", "2012-12-31").out)) == 4
    wrong = run("profile", "-c", config, "--all", "--from", "2013-1-1")
    assert "or a date (in America/New_York), found '2013-1-1'" in wrong.complaint


def test_a_range_is_text_or_a_time_with_its_zone(config: Path) -> None:
    found = ss.windows(config, "hourly", since="2013-01-01T01:00Z", until=datetime(2013, 1, 1, 3, tzinfo=UTC))
    assert [one.start.hour for one in found] == [1, 2]
    none = ss.windows(config, since="2014-01-01T00:00Z")
    assert len(none) == 0
    assert "none published" in repr(none)
    assert none.to_pandas().empty
    assert "none published" in none._repr_html_()
    for wrong in (datetime(2013, 1, 1), "yesterday"):  # noqa: DTZ001 - the point
        with pytest.raises(ss.ConfigError, match="since must be a time with its offset"):
            ss.windows(config, since=wrong)


@pytest.mark.parametrize("until", ["2013-01-01T01:00Z", "2013-01-01T02:00Z"])
def test_a_range_ends_after_its_beginning(config: Path, until: str) -> None:
    with pytest.raises(ss.ConfigError, match="since must be before until, found 2013-01-01T02"):
        ss.windows(config, since="2013-01-01T02:00Z", until=until)


def test_the_table_of_all_windows_agrees_with_their_profiles(config: Path) -> None:
    found = ss.windows(config)
    frame = found.to_pandas(["distinct", "at_least.3", "at_least.500", "quantile.0.5"])
    assert list(frame.columns)[:7] == [
        "window_start", "window_end", "complete", "history", "distinct", "distinct_low", "distinct_high",
    ]  # fmt: skip
    assert str(frame["window_start"].dt.tz) == "UTC"
    assert frame["window_start"][1] == datetime(2013, 1, 1, 1, tzinfo=UTC)
    assert frame["complete"].all()
    for row, one in zip(frame.itertuples(), found, strict=True):
        assert (row.distinct, row.distinct_low) == (one.profile().distinct.value, one.profile().distinct.low)
        assert row.at_least_3_high == one.profile().at_least(3).high
        assert np.isnan(row.at_least_500)
        assert row.quantile_0_5 == one.profile().quantile(0.5).value
    assert {"total_low", "entropy", "mean_high"} <= set(found.columns())


def test_a_missing_pandas_is_a_clear_error(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ss.windows(config)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ss.MissingExtraError, match="pip install pandas"):
        found.to_pandas()


def test_windows_in_which_partitions_were_added_have_no_intervals(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ss.Window, "intervals", property(lambda self: self.start.hour != 1))
    found = ss.windows(config)
    columns = found.columns(["distinct"])
    assert np.isnan(columns["distinct_low"]).tolist() == [False, True, False, False]
    assert not np.isnan(columns["distinct"]).any()
    assert found._repr_html_().count("[") < ss.windows(config)[1:]._repr_html_().count("[") + 6


def test_a_notebook_shows_trend_and_table(config: Path) -> None:
    text = ss.windows(config)._repr_html_()
    assert text.count("<svg") == 1
    assert "distinct: 1 to 4." in text
    assert '<th scope="row">01-01 03:00</th>' in text
    assert "an event loses at most 30" in text
    assert "About 4 distinct items" in ss.windows(config)[3]._repr_html_()


def test_a_sketch_is_chosen_by_name_where_there_are_several(run: Run, tmp_path: Path) -> None:
    both = SKETCH.format(name="a", most=20) + SKETCH.format(name="b", most=1)
    config = count(run, tmp_path, 2, both)
    with pytest.raises(ss.ConfigError, match="several sketches"):
        ss.windows(config)
    assert ss.windows(config, "b")[0].profile().max_count == 1
    # trends leave out what not every window resolves
    assert "10 times or more:" not in ss.windows(config, "b")._repr_html_()
    assert "10 times or more:" in ss.windows(config, "a")._repr_html_()


def test_the_ledger_of_a_deployment_explains_its_columns(run: Run, config: Path) -> None:
    out = run("ledger", "-c", config).out
    for column in ("sketch", "unit", "windows", "one window", "all windows"):
        assert column in out.splitlines()[0]
        assert re.search(rf"^  {column} +\S", out, re.MULTILINE)


def test_one_report_holds_the_trend_all_windows_and_a_choice_of_one(run: Run, config: Path, tmp_path: Path) -> None:
    result = run("profile", "-c", config, "--all", "--html", "all.html", "--format", "csv")
    assert result.code == 0
    assert len(result.out.splitlines()) == 1 + 4 * 21, "results are printed as without --html"
    text = (tmp_path / "all.html").read_text()
    assert not re.search(r"<(script|link|img|iframe|object)|@import|url\((?!#)", text)
    assert text.count("<svg") == text.count("</svg>") == 5
    assert text.count('<details name="fold"') == text.count("</details>") == 4
    assert text.count(" open>") == 1
    assert text.index("2013-01-01 03:00: About 4 distinct") < text.index("2013-01-01 00:00: About 1 distinct")
    assert "Not protected" in text
    assert "NO PRIVACY" in text, "epsilon 30"
    assert "(times of UTC)" in text


def test_a_report_over_many_windows_keeps_the_table_whole_and_folds_the_last(
    run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchstream.cli import windows_report

    report = windows_report.WindowsReport
    monkeypatch.setattr(
        windows_report, "WindowsReport", lambda *names: report(*names, folds=windows_report.deque(maxlen=2))
    )
    assert run("profile", "-c", config, "--all", "--html", "all.html").code == 0
    text = (tmp_path / "all.html").read_text()
    assert text.count("<details") == 2
    assert "only the last 2 of 4 are here" in text
    assert text.count('<th scope="row">01-01 0') == 4


def test_a_report_over_no_window_says_so(run: Run, config: Path, tmp_path: Path) -> None:
    assert run("profile", "-c", config, "--all", "--from", "2020-01-01T00:00Z", "--html", "all.html").code == 0
    assert "No window is published in that range." in (tmp_path / "all.html").read_text()
    result = run("profile", "-c", config, "--all", "--html", "nowhere/all.html")
    assert result.code == 1
    assert "no such file" in result.complaint


def test_long_trends_are_lines_with_few_labels() -> None:
    from sketchstream.pictures import charts

    n = 200
    values = np.linspace(5, 9, n)
    series = [charts.ChartSeries("distinct", values, values - 1, values + 1)]
    chart = charts.series_chart(series, [f"01-01 {i:02d}:00" for i in range(n)], "t", "a", "c")
    assert len(chart.svg) < 60_000
    assert sum(f"01-01 {i:02d}:00" in chart.svg for i in range(n)) <= charts.MAX_LABELS + 2


def test_records_that_came_too_late_are_spoken_of(run: Run, tmp_path: Path) -> None:
    """400 of 1,000 events are two hours behind the others, and are in no window."""
    hours = [0] * 200 + [3] * 200 + [0] * 400 + [4] * 200
    records = [{"ts": START + hour * HOUR + 1000 + i, "user": i % 60} for i, hour in enumerate(hours)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "c.toml").write_text(CONFIG + SKETCH.format(name="hourly", most=20))
    assert run("worker", "-c", "c.toml").code == 0
    result = run("profile", "-c", "c.toml", "--all", "--format", "json")
    assert result.code == 0
    said = re.search(r"about (\d+) records \[(\d+), (\d+)\] came too late", result.err)
    assert said is not None, result.err
    assert int(said[2]) < int(said[1]) < int(said[3])
    assert abs(int(said[1]) - 400) < 320  # ten standard deviations
    windows = [json.loads(line) for line in result.out.splitlines()]
    late = [one for one in windows if "too late" in one["quality"]["reason"]]
    assert [(one["complete"], one["window_start"]) for one in late] == [(False, windows[0]["window_start"])]


GROUPED = CONFIG + (
    '[[sketch]]\nname = "reach"\nunit = "event"\nwindow = "1h"\nepsilon = "30"\nmax_count = 20\n'
    "domain = { size = 60 }\n"
    'group_by = "campaign"\ngroups = "campaigns.txt"\nwhere = { country = ["DE", "AT"] }\n'
)


@pytest.fixture
def grouped(run: Run, tmp_path: Path) -> Path:
    """Hour h: h + 1 items of campaign a in DE, one of b, c in AT; others that do not count."""
    records = [
        {"ts": START + hour * HOUR + number, "user": user, "campaign": campaign, "country": country}
        for hour in range(2)
        for number, (user, campaign, country) in enumerate(
            [
                *((user, "a", "DE") for user in range(hour + 1)),
                (50, "b, c", "AT"),
                (51, "a", "FR"),
                (52, "z", "DE"),
                (53, "a", None),
            ]
        )
    ]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "campaigns.txt").write_text("a\nb, c\n")
    (tmp_path / "c.toml").write_text(GROUPED)
    result = run("worker", "-c", "c.toml")
    assert result.code == 0, result.err
    return tmp_path / "c.toml"


def test_answers_come_by_group(run: Run, grouped: Path) -> None:
    lines = run("profile", "-c", "c.toml", "--all", "--by", "group", "--format", "json").out.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(one["window_start"][11:13], one["group"], round(one["distinct"]["value"])) for one in found] == [
        ("00", "a", 1),
        ("00", "b, c", 1),
        ("01", "a", 2),
        ("01", "b, c", 1),
    ]
    assert "an event is in one group" in found[0]["guarantee"]["protects"][0]
    assert found[0]["guarantee"]["published"] == "30"
    assert "share_counted" not in found[0]["quality"], "not all records are meant to count"
    one = run("profile", "-c", "c.toml", "--all", "--group", "a", "--format", "csv").out.splitlines()
    assert one[0].startswith("window_start,complete,group,")
    assert one[1].startswith("2013-01-01T00:00:00Z,true,a,")
    text = run("profile", "-c", "c.toml", "--from", "2013-01-01T01:00Z", "--by", "group").out
    assert re.search(r"2013-01-01T01:00:00Z +b, c +complete +1", text)
    assert '"b, c"' in run("profile", "-c", "c.toml", "--all", "--by", "group", "--format", "csv").out
    alone = run("profile", "-c", "c.toml", "--to", "2013-01-01T01:00Z", "--group", "b, c", "--format", "json")
    assert json.loads(alone.out)["group"] == "b, c"
    file = next((grouped.parent / "sealed").rglob("*.sealed"))
    assert json.loads(run("profile", str(file), "--group", "a", "--format", "json").out)["group"] == "a"
    assert "file has 2 groups" in run("profile", str(file)).err.replace(file.name, "file")
    assert "b, c" in run("inspect", str(file)).out
    assert json.loads(run("validate", "-c", "c.toml", "--format", "json").out)["sketches"][0]["groups"] == 2
    assert "2, 60 slots each" in ss.load(file)._repr_html_()


def test_groups_in_python(grouped: Path) -> None:
    found = ss.windows(grouped, group="a")
    assert [round(one.profile().distinct.value) for one in found] == [1, 2]
    assert found[0].groups == ("a", "b, c")
    assert found[0].group == "a"
    assert "Window of reach group a" in repr(found[0])
    whole = ss.windows(grouped)
    assert [round(whole[1].of_group(name).profile().distinct.value) for name in whole[1].groups] == [2, 1]
    assert isinstance(whole[0].published, ss.Release)
    with pytest.raises(ss.EstimateError, match="no group 'd'"):
        ss.windows(grouped, group="d")


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["--all"], "sketch reach has 2 groups: choose one with --group NAME, or ask for all: --by group", 2),
        (["--all", "--group", "x"], "there is no group 'x' among the 2 groups", 2),
        (["--group", "a", "--by", "group"], "exclude each other", 2),
        (["--by", "group", "--html", "x.html"], "show one group", 2),
    ],
)
def test_questions_about_groups_that_have_no_answer(
    run: Run, grouped: Path, options: list[str], words: str, code: int
) -> None:
    result = run("profile", "-c", str(grouped), *options)
    assert words in result.err
    assert result.code == code


def test_groups_are_validated_before_the_first_record(run: Run, grouped: Path) -> None:
    config = grouped.read_text().replace('"campaign"', '"campagn"')
    (grouped.parent / "typo.toml").write_text(config)
    result = run("validate", "-c", "typo.toml")
    assert "'campagn' (group of sketch \"reach\")" in result.err
    assert "did you mean 'campaign'?" in result.err


@pytest.mark.parametrize(("complete", "text"), [(True, "complete, from table flights"), (None, "all 2 partitions")])
def test_a_report_counts_windows_as_complete_by_what_they_are_and_not_by_their_words(complete, text) -> None:
    profile = ss.Sketch.create(ss.ProfileSpec("1", domain=ss.ClosedDomain(size=9)), None).seal().profile()
    window = SimpleNamespace(window=(0, HOUR), complete=complete, describe=lambda: text)
    report = WindowsReport("reach", "UTC")
    report.add(window, ProfileAnswer(profile, {}, intervals=True))  # type: ignore[arg-type]
    assert ("1 of these windows are not complete" in report.page()) is not complete
