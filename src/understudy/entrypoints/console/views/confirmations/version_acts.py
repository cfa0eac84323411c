"""What is asked before an act on a version: it is retired, brought back, or asked about logged calls; and what came."""

import time
from collections.abc import Mapping
from shlex import quote

from understudy.entrypoints.cli.log.replay_text import NOTHING_WRITTEN, evidence_rows, heading_line, next_step
from understudy.entrypoints.cli.shared.errors import CommandRefused
from understudy.entrypoints.cli.shared.times import moment_of
from understudy.entrypoints.console.doing import Done
from understudy.entrypoints.console.views.confirmations.act_form import ActForm
from understudy.entrypoints.console.views.links import versions_path
from understudy.entrypoints.console.views.policy import Field
from understudy.errors import PolicyRefused
from understudy.experiments.log_replay import ReplayFinding, ReplayWanted
from understudy.ports.registry.registry import VersionChange

SINCE, CALLS, MAX_CALLS = "1d", 200, 1_000
"""As by default on the command line; more calls than a page waits for are asked there."""
WITHIN_SECONDS, CONCURRENCY = 20.0, 4


def retire_page(changed: VersionChange) -> ActForm:
    """Return what is asked before a version is retired; ``changed`` is what that would do at this moment."""
    record = changed.before
    return _status_page(
        changed,
        "Retire",
        f"{record.model_name} {record.version} would be retired: it gets no role, and no call may name it.",
        "Its row and its logged calls stay. It can be brought back. The audit will name your key.",
        "retire",
    )


def bring_back_page(changed: VersionChange) -> ActForm:
    """Return what is asked before a retired version is staging again."""
    record = changed.before
    return _status_page(
        changed,
        "Bring back",
        f"{record.model_name} {record.version} would be staging again; nothing is sent to it until a policy names it.",
        "The audit will name your key.",
        "restore",
    )


def status_words(changed: VersionChange) -> str:
    """Return what a change of a version's status did."""
    before, after = changed
    named = f"{after.model_name} {after.version}"
    if before.status == after.status:
        return f"Nothing changed: {named} is {after.status}."
    return f"Done: {named} is {after.status}, and was {before.status}."


def replay_page(model: str, version: str, others: tuple[str, ...]) -> ActForm:
    """Return what is asked before logged calls are sent to a version."""
    options = (("", "any other version"), *((one, one) for one in others))
    return ActForm(
        model,
        f"Replay logged calls on {version}",
        f"The newest calls whose inputs were logged would be sent to {version}, and its answers compared with those of "
        "then.",
        (("model servers", "its own are asked directly: callers and their figures notice nothing"),),
        (("version", version),),
        "Send them",
        is_ending=False,
        remark=f"{NOTHING_WRITTEN} It takes at most {WITHIN_SECONDS:.0f} s.",
        back=versions_path(model),
        command=f"understudy log replay {quote(model)} {quote(version)}",
        asked=(
            Field("since", "Calls since", SINCE, "so long ago: 24h, 7d; or a day: 2026-11-20"),
            Field("calls", "At most", str(CALLS), f"calls, the newest ones; up to {MAX_CALLS:,}", is_number=True),
            Field("from", "Answered by", "", "", options),
        ),
    )


def wanted_replay(model: str, version: str, fields: Mapping[str, str]) -> ReplayWanted:
    """Return the replay that a form asks for.

    Raises:
        PolicyRefused: A field is no such thing.
    """
    now, text = time.time(), fields.get("calls", "").strip() or str(CALLS)
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_CALLS))
    if not is_number or not 0 < int(text) <= MAX_CALLS:
        raise PolicyRefused(f"calls: a whole number from 1 to {MAX_CALLS:,}, not {text!r}", hint="For example 200.")
    try:
        since = moment_of(fields.get("since", "").strip() or SINCE, now, "since")
    except CommandRefused as refused:
        raise PolicyRefused(refused.detail, hint=refused.next_step) from None
    source = fields.get("from", "") or None
    return ReplayWanted(model, version, source, since, now, int(text), CONCURRENCY, None, WITHIN_SECONDS)


def replay_done(found: ReplayFinding) -> Done:
    """Return what a replay found, in the words of ``understudy log replay``."""
    rows = tuple(
        (name, ", ".join(part for part in (then and f"then {then}", now and f"now {now}", difference) if part))
        for name, then, now, difference in evidence_rows(found.report)
    )
    heading = ", ".join(part.strip() for part in heading_line(found).split("   ") if part.strip())
    facts = (("asked", " ".join(heading.split())), *rows, ("in a terminal", next_step(found)))
    return Done(f"Replayed: {found.report.sentence} {NOTHING_WRITTEN}", found.report.is_whole, facts=facts)


def _status_page(changed: VersionChange, title: str, sentence: str, remark: str, verb: str) -> ActForm:
    record = changed.before
    named = f"{quote(record.model_name)} {quote(record.version)}"
    is_needless = record.status == changed.after.status
    return ActForm(
        record.model_name,
        f"{title} {record.version}",
        f"{record.model_name} {record.version} is {record.status} already." if is_needless else sentence,
        (("status", f"{record.status} now, {changed.after.status} then"),),
        (("version", record.version),),
        title,
        is_ending=verb == "retire",
        remark=remark,
        back=versions_path(record.model_name),
        command=f"understudy version {quote(verb)} {named} --reason '…'",
        needs_reason=True,
    )
