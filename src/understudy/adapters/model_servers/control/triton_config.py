"""Triton's ``config.pbtxt``: an artifact brings its own, and an agent gives the model another name."""

import re
from typing import Final

_PIECE: Final = re.compile(
    r"""\#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|\s+|.""",
    re.DOTALL,
)
_OPENING, _CLOSING = "{[<", "}]>"


def without_name(config: str) -> str:
    """Return a model's configuration without its ``name``, for which Triton then takes that of the folder.

    Names within it, of inputs and outputs, stay.
    """
    kept, depth, is_skipped = [], 0, False
    for piece in _PIECE.findall(config):
        if is_skipped and (piece.isspace() or piece == ":" or piece[0] in "#\"'"):
            continue
        is_skipped = is_skipped and piece in (",", ";")
        if is_skipped:
            is_skipped = False
            continue
        depth += (piece in _OPENING) - (piece in _CLOSING)
        if depth == 0 and piece == "name":
            is_skipped = True
            continue
        kept.append(piece)
    return "".join(kept)
