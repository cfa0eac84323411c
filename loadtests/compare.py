"""``make bench BEFORE=…``: the product of two checkouts in alternating pairs, and one table of what became worse."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from loadtests.checkouts import Checkout, Sides
from loadtests.pairs import MARGIN, Compared, Pairs
from loadtests.report import check_line, digits
from loadtests.result import say
from loadtests.scene import Scene
from loadtests.section import Effort, Section

_ROW = "{:<5}{:<44}{:>12}{:>12}{:>8}{:>18}  {}"


def compare(section: Section, scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure a section's pairs, and as many again when an interval is wide and the effort is not a quick one."""
    assert section.compare is not None
    found = section.compare(scene, effort, checkouts)
    if not effort.quick and any(one.interval.is_wide for one in found.pairs):
        say(f"  an interval is wider than ± {MARGIN:.0%}: {effort.rounds} pairs more")
        found = found.with_more(section.compare(scene, effort, checkouts))
    return found


def table(found: Mapping[str, Compared], sections: Iterable[Section]) -> str:
    """Return the pairs of all sections, what is worse, what cannot be told, the checks, and what was left out."""
    pairs = [one for compared in found.values() for one in compared.pairs]
    return "\n".join(
        [
            _ROW.format("", "target", "before", "now", "ratio", "interval", "").rstrip(),
            *map(_row, pairs),
            "",
            *_conclusions(pairs),
            "",
            *(check_line(name, check) for name, compared in found.items() for check in compared.checks),
            *(f"{one.name:<5}left out: {one.left_out}" for one in sections if one.left_out),
        ]
    )


def _row(one: Pairs) -> str:
    before, now = (f"{digits(median(side))} {one.unit}" for side in one.figures)
    spread = f"{one.interval.low:.3f} to {one.interval.high:.3f}"
    return _ROW.format(one.target, one.text, before, now, f"{one.ratio:.3f}", spread, one.verdict)


def _conclusions(pairs: list[Pairs]) -> list[str]:
    lines = [
        *_named(pairs, "worse", f"worse by more than {MARGIN:.0%}"),
        *_named(pairs, "not measured", "not measured"),
        *_named(
            pairs, "within spread", f"over {MARGIN:.0%}, but within the spread of the pairs, so not shown to be worse"
        ),
    ]
    if not lines:
        lines.append(f"nothing is worse by more than {MARGIN:.0%}")
    wide = [_name(one) for one in pairs if one.interval.is_wide and one.verdict in ("ok", "within spread")]
    if wide:
        lines.append(f"wider than ± {MARGIN:.0%}, so that a change of this size can go unseen: {'; '.join(wide)}")
    lines += [
        f"{count} pairs: the interval holds the true median with {coverage:.0%}"
        for count, coverage in sorted({(len(one.ratios), one.interval.coverage) for one in pairs})
    ]
    return lines


def _named(pairs: list[Pairs], verdict: str, text: str) -> list[str]:
    names = [f"{_name(one)} ({one.ratio - 1:+.1%})" for one in pairs if one.verdict == verdict]
    return [f"{text}: {'; '.join(names)}"] if names else []


def _name(one: Pairs) -> str:
    return f"{one.target} {one.text}"


def as_json(found: Mapping[str, Compared], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything, the single pairs too."""
    return {
        **about,
        "margin_ratio": MARGIN,
        "sections": {
            name: {
                "pairs": [_pairs_as_json(one) for one in compared.pairs],
                "checks": [check._asdict() for check in compared.checks],
            }
            for name, compared in found.items()
        },
    }


def _pairs_as_json(one: Pairs) -> dict[str, Any]:
    return {
        "target": one.target,
        "text": one.text,
        "unit": one.unit,
        **one.figures._asdict(),
        "ratio": round(one.ratio, 4),
        "interval": {name: round(value, 4) for name, value in one.interval._asdict().items()},
        "verdict": one.verdict,
    }
