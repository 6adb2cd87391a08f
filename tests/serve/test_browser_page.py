"""The service's page in a real browser: sizes, light and dark, keyboard, pointer, without JavaScript, other hosts.

In: Chromium, which `make chromium` brings; the demo's output, and a site with every state. Out: verdicts.
Touches: temporary folders.
"""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from helpers import browsers, pages
from helpers.commands import Run
from helpers.paths import ROOT
from helpers.serving import MINUTE
from helpers.streams import EPOCH
from sketchstream.pictures import charts
from sketchstream.pictures.numbers import spelling
from sketchstream.stream.windows.calendar import iso
from sketchstream.texts.number_texts import with_interval

pytestmark = pytest.mark.browser

JULY = "/sketches/aircraft/window?from=2013-07-01T04:00:00Z&to=2013-08-01T04:00:00Z"
ONCE = "/sketches/aircraft?metric=exactly.1"
BEYOND = """[...document.querySelectorAll('svg text')].filter((one) => {
  const [box, picture] = [one, one.closest('svg')].map((part) => part.getBoundingClientRect());
  return box.width > 0 && (box.left < picture.left - 2 || box.right > picture.right + 2);
}).map((one) => one.textContent)"""
"""Texts that are wider than their picture."""
LOOKS = [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark"), (3840, "light")]


@pytest.fixture(scope="module")
def browser():
    with browsers.started() as found:
        yield found


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    with pages.demo(tmp_path_factory.mktemp("demo")) as found:
        yield found


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    with pages.every_kind(tmp_path_factory.mktemp("kinds")) as found:
        yield found


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory):
    with pages.overlapping(tmp_path_factory.mktemp("overlapping")) as found:
        yield found


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    with pages.closed_minutes(tmp_path_factory.mktemp("closed")) as found:
        yield found


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    with pages.mixed(tmp_path_factory.mktemp("mixed")) as found:
        yield found


def base(site):
    return str(site[2].base_url).rstrip("/")


def minute(number, sketch="minutes"):
    return f"/sketches/{sketch}/window?from={iso(EPOCH + number * MINUTE)}&to={iso(EPOCH + (number + 1) * MINUTE)}"


def seen(page):
    """A screenshot as an (height, width, 3) array."""
    return np.asarray(Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB"))


def look(visit, address, dark):
    """Open a page and judge it as it is shown."""
    page = visit.open(address)
    assert visit.overflow() == 0, f"{address} scrolls sideways"
    assert visit.violations() == [], address
    picture = seen(page)
    paper = picture[-1, -1].tolist()
    assert paper == ([20, 24, 29] if dark else [255, 255, 255]), address
    assert (np.abs(picture.astype(int) - paper).sum(axis=2) > 60).mean() > 0.005, f"{address} is nearly empty"
    letters = page.evaluate(
        "Math.min(...[...document.querySelectorAll('svg text')].map((one) => one.getBoundingClientRect())"
        ".filter((box) => box.width > 0).map((box) => Math.min(box.height, 99)), 99)"
    )
    assert letters >= 5, f"{address}: letters of charts can be read"
    assert page.evaluate(BEYOND) == [], f"{address}: texts of charts are cut off"


@pytest.mark.parametrize("name", ["spring", "an extraordinarily long name of a campaign, as people give them"])
def test_titles_and_names_of_charts_are_not_cut_off(browser, name):
    title, columns = (
        "Items seen 3 times or more, mean of 28 windows by group",
        [f"2026-11-{day:02d}" for day in range(1, 9)],
    )
    values = np.arange(16.0).reshape(2, 8)
    bars = charts.Bars([name, "nobody"], values[1, :2], values[1, :2] - 5, values[1, :2] + 5)
    grid = charts.GridChart([name, "nobody"], columns, values, values - 5, values + 5)
    drawn = [charts.bar_chart(bars, title, "number", "", wide=wide) for wide in (False, True)]
    drawn += [charts.heat_chart(grid, title, ("group", "window"), "", wide=wide) for wide in (False, True)]
    page = browser.new_page()
    page.set_content("".join(f'<div style="width: {width}px">{one.svg}</div>' for one in drawn for width in (320, 900)))
    assert page.evaluate(BEYOND) == []
    page.close()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_pages_fit_can_be_read_and_ask_nobody_else(browser, demo, width, scheme):
    with browsers.visit(browser, base(demo), width, scheme) as visit:
        for address in ("/", ONCE, JULY, "/ledger"):
            look(visit, address, scheme == "dark")
        assert visit.strangers() == []
        assert visit.complaints == [], "the policy refused something, or the script failed"
        assert len(visit.asked) >= 8


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_every_state_fits_and_can_be_read(browser, mixed, width, scheme):
    with browsers.visit(browser, base(mixed), width, scheme) as visit:
        for address in (
            "/sketches/minutes", "/sketches/counts", minute(0), minute(2), minute(2, "counts"), "/incidents", "/help",
            "/sketches/minutes?from=1999-01-01&to=1999-01-02",
        ):  # fmt: skip
            look(visit, address, scheme == "dark")
        assert visit.complaints == []
        visit.open("/sketches/nothing")
        assert visit.violations() == []
        assert visit.strangers() == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_a_window_that_is_still_open_fits_and_can_be_read(browser, closed, width, scheme):
    with browsers.visit(browser, base(closed), width, scheme) as visit:
        look(visit, "/sketches/minutes", scheme == "dark")
        heading = visit.page.get_by_role("heading", name="Still open: 2024-01-01 01:00 to 02:00")
        assert heading.is_visible()
        assert visit.page.get_by_text("34 of 60 positions have closed").is_visible()
        assert visit.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_what_groups_have_in_common_fits_and_can_be_read(browser, overlapping, width, scheme):
    hour = "from=2013-01-01T01:00:00Z&to=2013-01-01T02:00:00Z"
    with browsers.visit(browser, base(overlapping), width, scheme) as visit:
        for query in ("", "&query=spring+%26+brand"):
            look(visit, f"/sketches/reach/overlap?{hour}{query}", scheme == "dark")
        assert visit.page.locator("#headline").inner_text().startswith("spring & brand: ")
        visit.page.get_by_label("Set of groups").fill("spring | brand")
        visit.page.get_by_role("button", name="Show").click()
        visit.page.wait_for_selector("#headline:has-text('spring | brand: ')")
        look(visit, f"/sketches/reach/window?{hour}", scheme == "dark")
        visit.page.get_by_role("link", name="What its groups have in common").click()
        visit.page.wait_for_selector("#upset")
        assert visit.complaints == []
        assert visit.strangers() == []


HOUR = "from=2013-01-01T02:00:00Z&to=2013-01-01T03:00:00Z"


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_pages_of_every_kind_fit_and_can_be_read(browser, kinds, width, scheme):
    distances = httpx.get(f"{base(kinds)}/v1/sketches/rows/estimate?{HOUR}&among=5", timeout=60)
    assert distances.status_code == 200  # the page shows them as soon as they are computed
    with browsers.visit(browser, base(kinds), width, scheme) as visit:
        for sketch in ("counts", "tables", "series", "rows"):
            look(visit, f"/sketches/{sketch}", scheme == "dark")
            look(visit, f"/sketches/{sketch}/window?{HOUR}", scheme == "dark")
        for sketch in ("tables", "counts"):
            look(visit, f"/sketches/{sketch}/compare", scheme == "dark")
        assert visit.complaints == []
        assert visit.strangers() == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_links_lead_to_stretches_of_a_long_series(browser, kinds, width, scheme):
    whole = f"/sketches/series/window?{HOUR}"
    with browsers.visit(browser, base(kinds), width, scheme) as visit:
        look(visit, f"{whole}&stretch=filter-0.45.90", scheme == "dark")
        page = visit.open(whole)
        offered = page.locator("#filter-0 nav a")
        assert offered.count() == 8
        assert page.locator("#filter-0 details tbody tr").count() == 360
        second = offered.nth(1).inner_text()
        offered.nth(1).click()
        page.wait_for_url("**stretch=filter-0.45.90#filter-0")
        assert page.locator("#filter-0 h3").text_content() == f"window:3, {second}"
        assert page.locator("#filter-0 details tbody tr").count() == 45
        assert page.locator("#filter-1 details tbody tr").count() == 360, "other pictures stay whole"
        assert page.locator("#filter-0 nav a").all_inner_texts()[0].startswith("All: ")
        assert page.locator("#filter-0 nav a").count() == 1, "each of 45 numbers can be seen"
        file = page.locator("#filter-0 a", has_text="SVG").first.get_attribute("href")
        page.locator("#filter-0 nav a").first.click()
        page.wait_for_selector("#filter-0 nav a:nth-child(8)")
        assert "stretch" not in page.url
        visit.open("/sketches/series")
        assert page.locator("#chain-0 nav a").count() == 8
        assert visit.complaints == []
    client = kinds[2]
    assert second.split(" to ")[0] in client.get(file).text
    for wrong in ("filter-0.45", "filter-0.90.45", "filter-0.0.361", "filter-0.a.b", "filter-0.-1.4"):
        assert client.get(f"{whole}&stretch={wrong}").status_code == 400, wrong


def test_two_windows_are_chosen_and_compared_by_keyboard(browser, demo):
    with browsers.visit(browser, base(demo)) as visit:
        page = visit.open("/sketches/aircraft/compare")
        focus(page, "select[name=window]")
        page.keyboard.type("April 2013")
        focus(page, "select[name=against]")
        page.keyboard.type("May 2013")
        focus(page, "button")
        page.keyboard.press("Enter")
        page.wait_for_url("**/compare?window=2013-04**")
        told = page.inner_text("#lead")
        assert told.startswith("Distinct items: April 2013 has ")
        given = {"from": "2013-04-01T04:00:00Z", "to": "2013-05-01T04:00:00Z"}
        against = {"against_from": "2013-05-01T04:00:00Z", "against_to": "2013-06-01T04:00:00Z"}
        found = demo[2].get("/v1/sketches/aircraft/difference", params=given | against | {"metric": "exactly.1"}).json()
        rows = page.locator(".compared tbody tr")
        cells = rows.nth(1).locator("data").evaluate_all("all => all.map((one) => Number(one.value))")
        ends = ("value", "low", "high")
        assert cells == [found[part][end] for part in ("window", "against", "difference") for end in ends]
        assert visit.violations() == []
        assert visit.complaints == []


def test_the_judges_find_what_is_wrong(browser, demo):
    with browsers.visit(browser, base(demo), 360) as visit:
        page = visit.open(JULY)
        page.evaluate("document.querySelector('svg').removeAttribute('aria-label')")
        page.evaluate("document.querySelector('h1').style.color = '#ccc'")
        page.evaluate(
            "document.querySelector('main').append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x'}))"
        )
        page.evaluate("document.querySelector('.lead').style.width = '900px'; 0")
        page.evaluate("document.querySelector('.lead').style.maxWidth = 'none'; 0")
        page.wait_for_timeout(200)
        rules = " ".join(visit.violations())
        assert "color-contrast" in rules
        assert "svg-img-alt" in rules
        assert visit.overflow() > 0
        assert any("Content Security Policy" in one for one in visit.complaints)


def largest(folder, run: Run):
    """The month with the most aircraft seen once, with its interval, as the command line has it."""
    result = run("profile", "-c", folder / "sketchstream.toml", "--sketch", "aircraft", "--all", "--format", "json")
    assert result.code == 0
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert len(rows) == 12
    return max(rows, key=lambda row: row["exactly"]["1"]["value"]), rows


def focus(page, selector, most=40):
    """Press Tab until an element has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    pytest.fail(f"{selector} is not reached by Tab")


def test_a_new_user_finds_the_month_with_the_most_aircraft_seen_once_by_keyboard(browser, demo, run):
    best, rows = largest(demo[0], run)
    once = best["exactly"]["1"]
    began = time.monotonic()
    with browsers.visit(browser, base(demo)) as visit:
        page = visit.open("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        focus(page, "h2 a")
        page.keyboard.press("Enter")
        page.wait_for_url("**/sketches/aircraft")
        focus(page, "select[name=metric]")
        page.keyboard.type("items seen only once")
        focus(page, "button")
        page.keyboard.press("Enter")
        page.wait_for_url("**metric=exactly.1**")
        told, whole = page.inner_text("#largest"), spelling("exactly")
        month = f"{np.datetime64(best['window_start'][:19]).item():%B %Y}"
        assert told.startswith(
            f"Most items seen only once: {month}, {whole(once['value'])} "
            f"(95% interval {whole(once['low'])} to {whole(once['high'])})."
        )
        # the chart reads out the same, month by month
        focus(page, ".wide input[type=range]")
        for number, row in enumerate(rows):
            one = row["exactly"]["1"]
            name = row["window_start"][:7]
            expected = f"{name}: {with_interval(one['value'], one['low'], one['high'], whole)}"
            assert page.inner_text(".wide output") == expected
            assert page.get_attribute(".wide input", "aria-valuetext") == expected
            if number < len(rows) - 1:
                page.keyboard.press("ArrowRight")
        assert page.url == f"{base(demo)}/sketches/aircraft?metric=exactly.1&from=&to=&order=time", "a link has it all"
        assert visit.complaints == []
    assert time.monotonic() - began < 600


def test_the_pointer_reads_the_same_numbers(browser, demo, run):
    _, rows = largest(demo[0], run)
    whole = spelling("exactly")
    with browsers.visit(browser, base(demo)) as visit:
        page = visit.open(ONCE)
        points = json.loads(page.get_attribute(".wide .chart", "data-points") or "[]")
        box = page.locator(".wide svg").bounding_box()
        assert box is not None
        for number in (0, 5, 11):
            x, y, _ = points[number]
            page.mouse.move(box["x"] + x * box["width"] + 3, box["y"] + y * box["height"] + 40)
            one = rows[number]["exactly"]["1"]
            assert page.inner_text(".wide output").endswith(with_interval(one["value"], one["low"], one["high"], whole))
        # the mark stands on the dot that matplotlib drew
        mark = page.locator(".mark").bounding_box()
        assert mark is not None
        assert mark["x"] + mark["width"] / 2 == pytest.approx(box["x"] + points[11][0] * box["width"], abs=2)


def test_every_number_of_the_page_is_the_command_lines(browser, demo, run):
    _, rows = largest(demo[0], run)
    july = rows[6]
    api = demo[2].get("/v1/sketches/aircraft/profile", params={"from": july["window_start"], "to": july["window_end"]})
    assert api.json() == july
    with browsers.visit(browser, base(demo)) as visit:
        page = visit.open(ONCE)
        values = page.evaluate("[...document.querySelectorAll('table data')].map((one) => Number(one.value))")
        assert values == [row["exactly"]["1"][end] for row in rows for end in ("value", "low", "high")]
        page.click("table a:text('July 2013')")
        page.wait_for_load_state()  # a click waits for the address only
        assert page.url.replace("%3A", ":") == base(demo) + JULY
        values = page.evaluate("[...document.querySelectorAll('.picture data')].map((one) => Number(one.value))")
        assert len(values) > 50
        assert set(values) <= pages.ends(july)


def test_it_can_be_read_without_javascript(browser, demo):
    with browsers.visit(browser, base(demo), java_script_enabled=False) as visit:
        page = visit.open(ONCE)
        assert page.locator("table tbody tr").count() >= 12
        assert page.locator(".wide svg").is_visible()
        assert page.locator("input[type=range]").count() == 0
        page.select_option("select[name=metric]", "at_least.10")
        page.click("button")
        assert "items seen 10 times or more" in page.inner_text("#largest")
        page.click("table a:text('July 2013')")
        page.wait_for_load_state()
        assert page.locator(".picture svg").count() == 2
        assert page.locator("table").count() == 4


def test_a_page_that_waits_for_numbers_shows_them_by_itself(browser, tmp_path):
    with pages.mixed(tmp_path) as site, browsers.visit(browser, base(site)) as visit:
        page = visit.open(minute(5))
        assert "being reconstructed" in page.inner_text("main")
        page.wait_for_selector(".picture svg", timeout=60_000)
        assert "2 of 3 partitions" in page.inner_text("main")


def test_a_page_that_waits_does_not_reload_while_somebody_chooses(browser, demo):
    def waiting(route):
        found = route.fetch()
        route.fulfill(response=found, body=found.text().replace("<body", '<body data-refresh="3"', 1))

    with browsers.visit(browser, base(demo)) as visit:
        page = visit.open(ONCE)
        page.route("**/sketches/aircraft?*", waiting)
        page.reload()
        page.evaluate("window.same = true; document.querySelector('select[name=metric]').focus()")
        page.wait_for_timeout(4500)
        assert page.evaluate("window.same === true"), "the choice would be lost"
        with page.expect_navigation(timeout=30_000):
            page.evaluate("document.activeElement.blur()")


def test_the_pictures_of_the_documents_are_of_this_page(browser, demo, tmp_path):
    """`make pictures` writes them; a run without that holds the stored ones to what the page is now."""
    folder = Path(os.environ.get("SKETCHSTREAM_PICTURES", tmp_path))
    with browsers.visit(browser, base(demo), 1280) as visit:
        page = visit.open("/?metric=at_least.3")
        page.screenshot(path=folder / "page.png")
        assert "Items seen 3 times or more" in page.inner_text("main")
    stored, made = (Image.open(one / "page.png") for one in (ROOT / "docs" / "images", folder))
    assert stored.size == made.size
    apart = np.abs(np.asarray(stored.convert("L"), float) - np.asarray(made.convert("L"), float)) > 60
    assert apart.mean() < 0.08, "the page looks otherwise: run `make pictures`"
    assert "docs/images/page.png" in (ROOT / "README.md").read_text()


def test_printed_pages_leave_the_controls_out(browser, demo):
    with browsers.visit(browser, base(demo)) as visit:
        page = visit.open(ONCE)
        page.emulate_media(media="print")
        assert not page.locator("form").is_visible()
        assert not page.locator(".wide input").is_visible()
        assert page.locator("table").first.is_visible()
