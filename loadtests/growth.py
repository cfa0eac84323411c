"""P13: how a call's cost grows with its body, with the models beside its own, and with changes of its policy."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from loadtests.checkouts import Checkout, Sides
from loadtests.grown import (
    CHANGES_PER_MINUTE,
    FEATURES,
    MODELS,
    WIDE,
    Changes,
    Grown,
    grown_to,
    install,
    start,
    wide_model,
)
from loadtests.pairs import interval_of
from loadtests.report import digits
from loadtests.rounds import Contender, answered_checks, cpu_pairs, details, take_turns
from loadtests.scene import Scene
from loadtests.section import Check, Compared, Effort, Findings, Section, Target

LINEAR, FLAT = 1.1, 1.05
_MADE = 0.8
"""Of the changes that are due, so many must have been made."""
_LOST = ('prediction_log_rows_total{outcome="dropped"', 'prediction_log_rows_total{outcome="rejected"')


def run(scene: Scene, effort: Effort) -> Findings:
    """Measure calls of three sizes in turns, and then one size beside more models and more changes, in turns."""
    installations = install(scene)
    wide = start(scene, WIDE, installations)
    by_features = [wide.contender(f"{count:,} features", wide_model(count), count) for count in FEATURES]
    take_turns(scene, by_features, effort)

    grown = [start(scene, grown_to(count), installations) for count in MODELS]
    by_models = [one.contender(_models(count)) for count, one in zip(MODELS, grown, strict=True)]
    changes = {place: Changes(grown[place].installation) for place in (0, -1)}
    changing = [_beside_changes(by_models[place], grown[place], one) for place, one in changes.items()]
    take_turns(scene, [*by_models, *changing], effort)

    beside_changes = list(zip(changing, (by_models[place] for place in changes), strict=True))
    flat = [*((one, by_models[0]) for one in by_models[1:]), *beside_changes]
    contenders = [*by_features, *by_models, *changing]
    lost = sum(one.proxy.metric(*_LOST) for one in (wide, *grown))
    scrapes = ", ".join(f"{_models(count)} {one.scrape_ms():.0f}" for count, one in zip(MODELS, grown, strict=True))
    return Findings(
        targets=[linear_target(by_features), *(flat_target(more, fewer) for more, fewer in flat)],
        checks=[
            *answered_checks(contenders),
            Check("no row was dropped", lost == 0, f"{lost:,.0f} dropped"),
            *(_was_changed(by_models[place].name, one) for place, one in changes.items()),
        ],
        notes=[
            _slopes_by_bytes(by_features),
            *(_spread(more, fewer) for more, fewer in flat),
            *(f"{one.name}: {per_change_ms(still, one):.1f} ms CPU a change" for one, still in beside_changes),
            f"ms CPU of a scrape of /metrics: {scrapes}",
        ],
        detail=details(contenders),
    )


def body_bytes(features: int) -> int:
    """Return the size of a body that ``predict.lua`` sends."""
    inputs = ",".join(f'"feature_{number:02d}":0.12345' for number in range(1, features + 1))
    return len(f'{{"entity_id":"customer-12345678","inputs":{{{inputs}}}}}')


def on_the_line(few_us: float, some_us: float) -> float:
    """Return what the largest body would cost if each byte cost what it does between the two smaller ones."""
    few, some, many = map(body_bytes, FEATURES)
    return few_us + (some_us - few_us) * (many - few) / (some - few)


def linear_target(contenders: Sequence[Contender]) -> Target:
    """Return the target on the largest body's cost."""
    few, some, many = (one.server_us for one in contenders)
    text = f"CPU, {FEATURES[2]:,} features ÷ the line through {FEATURES[0]} and {FEATURES[1]}"
    return Target("P13", text, many, "µs", LINEAR, on_the_line(few, some))


def flat_target(more: Contender, fewer: Contender) -> Target:
    """Return the target on a cost that must not grow."""
    return Target("P13", f"CPU, {more.name} ÷ {fewer.name}", more.server_us, "µs", FLAT, fewer.server_us)


def ratios(more: Contender, fewer: Contender) -> list[float]:
    """Return how many times the cost is, round by round."""
    return [one.server_us / beside.server_us for one, beside in zip(more.rounds, fewer.rounds, strict=True)]


def _slopes_by_bytes(contenders: Sequence[Contender]) -> str:
    costs = [one.server_us for one in contenders]
    kibs = [body_bytes(features) / 1024 for features in FEATURES]
    slopes = [
        (more_us - fewer_us) / (more - fewer)
        for (fewer_us, more_us), (fewer, more) in zip(pairwise(costs), pairwise(kibs), strict=True)
    ]
    return (
        f"{', '.join(f'{one.name} {digits(one.server_us)} µs' for one in contenders)}; "
        f"a KiB of body more costs {' and then '.join(map(digits, slopes))} µs"
    )


def _spread(more: Contender, fewer: Contender) -> str:
    spread = interval_of(ratios(more, fewer))
    return f"{more.name} ÷ {fewer.name}: in the rounds {spread.low:.3f} to {spread.high:.3f}"


def per_change_ms(still: Contender, changing: Contender) -> float:
    """Return the processor time of one change: what a second of load needs more, over the changes of a second."""
    us_a_second = (changing.server_us - still.server_us) * changing.per_second
    return us_a_second / 1000 / (CHANGES_PER_MINUTE / 60)


def _beside_changes(still: Contender, grown: Grown, changes: Changes) -> Contender:
    """Return the same load while the policy of its model changes."""

    def settle() -> None:
        changes.end()
        grown.await_log()

    name = f"{still.name}, {CHANGES_PER_MINUTE} changes/min"
    return replace(still, name=name, prepare=changes.begin, settle=settle, rounds=[], sent=[])


def _was_changed(name: str, changes: Changes) -> Check:
    made = changes.made >= _MADE * changes.due
    return Check(f"policies changed on time, {name}", made, f"{changes.made} of {changes.due:.0f}")


def _models(count: int) -> str:
    return "one model" if count == 1 else f"{count:,} models"


def compare(scene: Scene, effort: Effort, checkouts: Sides[Checkout]) -> Compared:
    """Measure both checkouts' proxies with the largest body, and with the most models."""
    installations = install(scene)
    size, models = FEATURES[-1], MODELS[-1]
    wide, most = (checkouts.map(partial(start, scene, name, installations)) for name in (WIDE, grown_to(models)))
    large = Sides(
        *(one.contender(f"{size:,} features, {side}", wide_model(size), size) for side, one in wide._asdict().items())
    )
    beside = Sides(*(one.contender(f"{_models(models)}, {side}") for side, one in most._asdict().items()))
    contenders = [*large, *beside]
    take_turns(scene, contenders, effort)
    pairs = [
        cpu_pairs("P13", f"CPU, {size:,} features", large),
        cpu_pairs("P13", f"CPU, {_models(models)}", beside),
    ]
    return Compared(pairs, answered_checks(contenders))


SECTION = Section("P13", "how cost grows", run, compare)
