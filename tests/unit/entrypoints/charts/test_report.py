"""Report pages: nothing from outside, nothing unescaped."""

from html.parser import HTMLParser

from understudy.entrypoints.charts.distributions import Distribution, distributions
from understudy.entrypoints.charts.frame import Chart, Point, Tone
from understudy.entrypoints.charts.over_time import interval_over_time
from understudy.entrypoints.charts.report import figure, page, story, table

HOSTILE = "<script>alert('x')</script>&\"'"


class Tags(HTMLParser):
    """Collects elements and the addresses that they name."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action")]


def test_a_page_holds_every_text_as_text_and_asks_for_nothing():
    arms = [Distribution(HOSTILE, Tone.CHAMPION, [1, 2]), Distribution(HOSTILE, Tone.SHADOW, [2, 1])]
    parts: list[str | Chart] = [
        distributions(HOSTILE, arms, [0, 1, 2]),
        interval_over_time(HOSTILE, HOSTILE, [Point(0, 0, -1, 1)], [(0, HOSTILE)], unit=HOSTILE),
        table([HOSTILE], [[HOSTILE]]),
    ]

    document = page(HOSTILE, [HOSTILE], parts, HOSTILE)

    found = Tags()
    found.feed(document)
    assert "script" not in found.tags
    assert found.addresses == []
    assert HOSTILE not in document
    assert "url(" not in document
    assert "@import" not in document


def test_each_arm_has_its_colour_its_line_and_its_name():
    document = page("t", [], [distributions("s", [Distribution("A 6", Tone.CHAMPION, [1])], [0, 1])], "")

    assert "--champion:#0072B2" in document
    assert "--challenger:#D55E00" in document
    assert "prefers-color-scheme:dark" in document
    assert ".challenger.area,.challenger.line{stroke-dasharray:7 3}" in document
    assert ">A 6</text>" in document


def test_a_story_holds_every_text_as_text():
    assert HOSTILE not in story(HOSTILE, [(HOSTILE, HOSTILE)])


def test_a_chart_stands_over_its_sentence_and_its_figures():
    chart = distributions("scores", [Distribution("A 6", Tone.CHAMPION, [1, 3])], [0, 0.5, 1])

    shown = figure(chart)

    assert shown.index("<svg") < shown.index(f"<figcaption>{chart.sentence}</figcaption>") < shown.index("<td>75</td>")


def test_a_row_has_a_colour_beside_its_word():
    assert '<tr class="bad"><td data-name="check">errors</td>' in table(["check"], [["errors"]], ["bad"])
