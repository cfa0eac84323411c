"""The warning about a version whose inputs differ from the champion's."""

from rich.text import Text

from understudy.core.schema.input_diff import InputDifferences


def input_warnings(champion: str, version: str, found: InputDifferences) -> list[Text]:
    """Return that calls which fit the champion fail at a version, and why; nothing where they do not."""
    if not found.lines():
        return []
    fails = "fails" if found.breaking else "may fail"
    head = Text("! ", "yellow").append(f"the inputs differ: a call that fits {champion} {fails} at {version} (422)")
    return [head, *(Text(f"  {line}") for line in found.lines())]
