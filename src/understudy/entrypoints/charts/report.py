"""Report pages (HTML): charts with their sentences and figures, tables, stories; nothing is loaded."""

from collections.abc import Sequence
from html import escape

from understudy.entrypoints.charts.frame import Chart


def figure(chart: Chart) -> str:
    """Return a chart with its sentence and its figures, as report pages and the console alike have them."""
    figures, name = table(chart.head, chart.rows, stacks=False), escape(f"Figures: {chart.title}")
    return (
        f'<figure class="chart">{chart.svg}<figcaption>{escape(chart.sentence)}</figcaption>'
        f'<details><summary>Its figures</summary><div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f"{figures}</div></details></figure>"
    )


def part_of_page(part: str | Chart) -> str:
    """Return a part of a page: a chart as its figure, and HTML of this module as it is."""
    return figure(part) if isinstance(part, Chart) else part


def story(title: str, lines: Sequence[tuple[str, str]]) -> str:
    """Return a list of events, each with its time."""
    told = "".join(f"<dt>{escape(when)}</dt><dd>{escape(what)}</dd>" for when, what in lines)
    return f"<h2>{escape(title)}</h2><dl>{told}</dl>"


def heading(title: str) -> str:
    """Return the heading of a part of a page."""
    return f"<h2>{escape(title)}</h2>"


def remark(text: str) -> str:
    """Return a sentence below a part of a page."""
    return f'<p class="remark">{escape(text)}</p>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], tones: Sequence[str] = (), *, stacks: bool = True) -> str:
    """Return a table; all columns but the first are figures.

    Args:
        head: The columns' names.
        rows: Their texts.
        tones: Of each row ``good``, ``bad``, ``wait`` or nothing: the colour of its second cell, which says the same.
        stacks: Whether each row is a list of named figures on a narrow screen.
    """
    titles = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    names = [f' data-name="{escape(text)}"' if stacks else "" for text in head]
    shades = [f' class="{tone}"' if tone else "" for tone in tones] or [""] * len(rows)
    lines = ("".join(f"<td{name}>{escape(text)}</td>" for name, text in zip(names, row, strict=True)) for row in rows)
    body = "".join(f"<tr{shade}>{line}</tr>" for line, shade in zip(lines, shades, strict=True))
    found = f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="stacks">{found}</div>' if stacks else found


def page(title: str, verdict: Sequence[str], parts: Sequence[str | Chart], note: str, tone: str = "") -> str:
    """Return a whole page: the verdict, then charts and tables, then a note on the source.

    Args:
        title: Of the page.
        verdict: Plain text, a paragraph each.
        parts: Charts, and HTML that functions of this module returned.
        note: Plain text.
        tone: Of the verdict, as of :func:`table`.
    """
    sentences = "".join(f'<p class="verdict">{escape(text)}</p>' for text in verdict)
    opened = f'<div class="says {tone}">{sentences}</div>' if tone else sentences
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>"
        f"{opened}{''.join(f'<section>{part}</section>' for part in map(part_of_page, parts))}"
        f"<footer>{escape(note)}</footer></main></body></html>\n"
    )


_STYLE = """
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--faint:#6b6b6b;--rule:#dcdcdc;
--champion:#0072B2;--challenger:#D55E00;--shadow:#a84a84;--good:#0b6e3b;--bad:#b3201b;--wait:#8a4b00}
@media (prefers-color-scheme:dark){:root{--ink:#ececec;--paper:#15171a;--faint:#a3a3a3;--rule:#33373c;
--champion:#3f9fd8;--challenger:#f08a3c;--shadow:#d58fb8;--good:#6fd49a;--bad:#ff9d96;--wait:#f5bd6a}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:820px;margin:0 auto;padding:24px 20px}
h1{font-size:20px;margin:0 0 12px;overflow-wrap:anywhere}.verdict{font-size:17px;margin:0 0 8px;overflow-wrap:anywhere}
.says{border-left:5px solid var(--mood);padding-left:14px}
.good{--mood:var(--good)}.bad{--mood:var(--bad)}.wait{--mood:var(--wait)}
section{margin:24px 0;overflow-x:auto}footer{color:var(--faint);font-size:13px}
table{border-collapse:separate;border-spacing:0;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 8px;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap;line-height:22px}
th:first-child,td:first-child{text-align:left;padding-left:0}
tr.good td:nth-child(2),tr.bad td:nth-child(2),tr.wait td:nth-child(2){color:var(--mood);font-weight:600}
.remark,figcaption{color:var(--faint);font-size:13px;margin:6px 0 0}
summary{cursor:pointer;font-size:13px;color:var(--faint)}.scroll{max-height:320px;overflow:auto}
figure{margin:0}h2{font-size:15px;margin:0 0 6px}
dl{margin:0;display:grid;grid-template-columns:max-content 1fr;gap:4px 14px}
dt{color:var(--faint);font-variant-numeric:tabular-nums}dd{margin:0;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--ink);font-size:12px}svg .title{font-weight:600;font-size:14px}
.below{text-anchor:middle}.beside{text-anchor:end}svg .below,svg .beside,svg .moment-name{fill:var(--faint)}
.grid{stroke:var(--rule)}.zero{stroke:var(--ink);stroke-width:1.5}
.champion{--tone:var(--champion)}.challenger{--tone:var(--challenger)}.shadow{--tone:var(--shadow)}
.area{fill:var(--tone);fill-opacity:.18;stroke:var(--tone);stroke-width:2}
.line,.trace{fill:none;stroke:var(--tone);stroke-width:2.5}.dot{fill:var(--tone)}
.band{fill:var(--tone);fill-opacity:.2}.challenger.area,.challenger.line{stroke-dasharray:7 3}
.shadow.area,.shadow.line{stroke-dasharray:2 3}
.level{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:6 4}.moment{stroke:var(--faint);stroke-dasharray:2 3}
.level-name{paint-order:stroke;stroke:var(--paper);stroke-width:4px}
@media (max-width:700px){main{padding:16px 14px}svg{overflow:visible}svg text{font-size:20px}svg .title{font-size:22px}
.stacks thead{position:absolute;left:-9999px}.stacks table,.stacks tbody,.stacks tr,.stacks td{display:block}
.stacks tr{border-bottom:1px solid var(--rule);padding:6px 0}.stacks td{border:0;padding:1px 0;white-space:normal}
.stacks td:first-child{font-weight:600;overflow-wrap:anywhere}.stacks td:empty{display:none}
.stacks td:not(:first-child){display:grid;grid-template-columns:9em 1fr;gap:8px;text-align:left}
.stacks td:not(:first-child)::before{content:attr(data-name);color:var(--faint);font-weight:400}}
""".replace("\n", "")
