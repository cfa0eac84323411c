"""The warning about versions that their model server does not tell apart."""

from collections.abc import Sequence

from rich.text import Text

from understudy.core.upstream.same_call import SameCall


def same_call_warnings(found: Sequence[SameCall]) -> list[Text]:
    """Return which versions one model may answer, and what to do about it; nothing where there are none."""
    lines = []
    for one in found:
        lines += [Text("! ", "yellow").append(one.words), Text(f"  {one.advice}")]
    return lines
