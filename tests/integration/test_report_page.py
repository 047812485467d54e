"""The report in a real browser: shown without an error in every form, sorted and walked through as a reader would."""

import shutil

import pytest
from report_helpers import make_study

from sharedqkv.evidence.report import build_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run")
FORMS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    make_study(folder, {"standard": 0.95, "shared": 0.75, "narrow": 0.94}, seeds=4, finetune_seeds=1, examples=60)
    return build_report(folder)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs `pip install playwright`")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, report):
    """Opens the report; whatever goes wrong while it is used fails the test."""
    troubles, contexts = [], []

    def open_as(width=1280, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("requestfailed", lambda request: troubles.append(request.url))
        page.goto(report.as_uri())
        return page

    yield open_as
    for context in contexts:
        context.close()
    assert not troubles


def brightness(colour):
    """0 to 1, of `rgb(r, g, b)`."""
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(channels) / 3


@pytest.mark.parametrize(("width", "scheme"), FORMS)
def test_shown_whole_at_every_width_and_in_the_dark(width, scheme, open_page):
    page = open_page(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page itself must not scroll sideways"
    drawings = page.locator("figure svg")
    assert drawings.count() >= 9
    for index in range(drawings.count()):
        box = drawings.nth(index).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 80
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    assert (brightness(paper) < 0.2, brightness(ink) > 0.8) == ((scheme == "dark"),) * 2


def test_wide_tables_scroll_inside_their_box(open_page):
    box = open_page(390).locator("table.size").locator("..")
    wide, shown = box.evaluate("box => [box.scrollWidth, box.clientWidth]")
    assert wide > shown


def scores_of(page):
    return page.locator("table.scores tbody tr").evaluate_all(
        "rows => rows.map(row => [row.cells[0].textContent, Number(row.cells[4].dataset.value)])"
    )


def test_tables_sort_by_click_and_by_key(open_page):
    page = open_page()
    assert [name for name, _ in scores_of(page)] == ["standard", "shared", "narrow"]
    head = page.locator("table.scores thead th").nth(4)
    head.get_by_role("button").click()
    ascending = [value for _, value in scores_of(page)]
    assert ascending == sorted(ascending)
    assert scores_of(page)[0][0] == "shared"
    assert head.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")  # the button has the focus
    assert [value for _, value in scores_of(page)] == ascending[::-1]
    assert head.get_attribute("aria-sort") == "descending"
    page.locator("table.scores thead th").nth(0).get_by_role("button").click()
    assert [name for name, _ in scores_of(page)] == ["narrow", "shared", "standard"]
    assert head.get_attribute("aria-sort") is None
    assert page.locator("table.scores tfoot tr").inner_text().startswith("best constant answer")


def test_the_contents_lead_to_their_sections(open_page):
    page = open_page()
    links = page.locator("nav a")
    assert links.count() == 12
    for index in range(links.count()):
        links.nth(index).click()
        target = page.locator(links.nth(index).get_attribute("href"))
        assert target.locator("h2").is_visible()
        page.wait_for_function(
            "section => section.getBoundingClientRect().top < innerHeight", arg=target.element_handle()
        )


def test_the_first_tab_leads_past_the_contents(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_url("**#content")


def test_details_open(open_page):
    page = open_page()
    table = page.locator("table.comparisons")
    assert not table.is_visible()
    page.get_by_text("Every comparison").click()
    assert table.is_visible()


def test_printed_without_what_only_a_screen_needs(open_page):
    page = open_page(scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("nav").is_visible()
    assert brightness(page.evaluate("getComputedStyle(document.body).backgroundColor")) == 1
    assert brightness(page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")) == 0
