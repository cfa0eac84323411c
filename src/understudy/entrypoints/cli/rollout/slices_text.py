"""The slices for which a challenger does worse, on a terminal: both sides' figures, and calls of theirs."""

from collections.abc import Sequence

from rich.text import Text

from understudy.core.canary.slices.failing_slices import slice_words
from understudy.rollout.verdicts.slice_verdict import NamedSlice


def slice_lines(found: Sequence[NamedSlice]) -> list[Text]:
    """Return a line for each slice, and one with each call of its that failed or was slow."""
    lines = []
    for one in found:
        lines.append(Text("slice ").append(slice_words(one.counted), "bold"))
        lines += [Text(f"  for example prediction {known}", "dim") for known in one.prediction_ids]
    return lines


def unknown_examples(counts_words: Sequence[str], why: str) -> list[Text]:
    """Return the slices without calls, and why there are none."""
    return [
        *(Text(f"slice {words}") for words in counts_words),
        Text("examples: ").append(f"not known, {why}", "yellow"),
    ]
