"""The entities that a challenger fails, on a terminal: who they are, what they did before, and calls of theirs."""

from collections.abc import Sequence

from rich.text import Text

from understudy.core.canary.entities.worst_entities import before_words
from understudy.rollout.verdicts.entity_verdict import NamedEntity

MAX_NAMED = 10
MAX_CHARACTERS = 60
"""Of an id: a longer one is cut."""


def entity_lines(found: Sequence[NamedEntity]) -> list[Text]:
    """Return a line for each entity, and one with calls of its that failed."""
    lines = []
    for one in found[:MAX_NAMED]:
        counted = one.counted
        who = "an entity that is not in the log any more" if one.entity_id is None else _shown(one.entity_id)
        line = Text("entity ").append(who, "bold").append(f": {counted.failed:,} of {counted.calls:,} calls failed; ")
        lines.append(line.append(before_words(counted)))
        lines += [Text(f"  for example prediction {known}", "dim") for known in one.prediction_ids]
    more = len(found) - MAX_NAMED
    return [*lines, *([Text(f"and {more} more: --json has all")] if more > 0 else [])]


def unknown_entities(why: str) -> Text:
    """Return that it is unknown who they are, and why."""
    return Text("failing entities: ").append(f"not known, {why}", "yellow")


def _shown(entity_id: str) -> str:
    return entity_id if len(entity_id) <= MAX_CHARACTERS else f"{entity_id[:MAX_CHARACTERS]}…"
