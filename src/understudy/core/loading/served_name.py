"""The name under which an agent loads a version into a model server: each version is a model of its own there.

Per-version names avoid what servers make of several versions of one model: an unload that takes them all, a reload in
place that leaks, versions that have to be integers.
"""

import re
from hashlib import sha256
from typing import Final

SERVED_VERSION: Final = "1"
"""The version number, and the folder, under that name."""
MAX_READABLE: Final = 100
_DIGEST_CHARACTERS: Final = 8
_SERVED: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_READABLE}}}--[0-9a-f]{{{_DIGEST_CHARACTERS}}}")


def served_name(model_name: str, version: str) -> str:
    """Return the name: readable, safe as a folder's name, and different for every version of every model."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", f"{model_name}--{version}")[:MAX_READABLE]
    digest = sha256(f"{model_name}\0{version}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{readable}--{digest[:_DIGEST_CHARACTERS]}"


def is_served_name(name: str) -> bool:
    """Whether a model of a server has a name of this kind; what others loaded there is not an agent's to unload."""
    return _SERVED.fullmatch(name) is not None
