"""Floating labels: what a tag of an image registry names now, as a version, and the rollout that it asks for.

Source: OCI image-spec 1.1, pre-defined annotation keys.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from understudy.core.loading.oci_address import OciAddress, oci_address

VERSION: Final = "org.opencontainers.image.version"
CREATED: Final = "org.opencontainers.image.created"
STEPS: Final = "dev.understudy.rollout.steps"
"""Shares in percent by commas, such as ``1,5,25,50``; 100 follows by itself."""
DIGEST_DIGITS: Final = 12
MAX_LABEL: Final = 80
"""Of what an annotation says, so that a digest fits behind it."""
_STEPS: Final = re.compile(r"[0-9]{1,3}(,[0-9]{1,3}){0,19}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._+-]")
_WHOLE: Final = 100


def version_label(annotations: Mapping[str, str], digest: str, taken: Iterable[str]) -> str:
    """Return the label of a version for an image: what its annotations say, or the first digits of its digest.

    Args:
        annotations: Of the manifest: the version, else the day that it was created.
        digest: Of the manifest, ``sha256:`` and 64 hex digits.
        taken: Labels of the model's other versions; a label that is among them has the digits behind it.
    """
    digits = digest.removeprefix("sha256:")[:DIGEST_DIGITS]
    said = annotations.get(VERSION) or annotations.get(CREATED, "")[: len("2026-11-28")]
    safe = _UNSAFE.sub("-", said)[:MAX_LABEL]
    if not safe:
        return digits
    return f"{safe}-{digits}" if safe in set(taken) else safe


def rollout_steps(annotations: Mapping[str, str], max_first_percent: int) -> str | None:
    """Return the steps of a rollout that an image asks for, as ``--plan`` takes them; ``None``: it asks for none.

    Raises:
        ValueError: They are none, do not rise, or the first one is larger than who follows the label permits.
    """
    text = annotations.get(STEPS)
    if text is None:
        return None
    spaceless = text.replace(" ", "")
    steps = [int(step) for step in spaceless.split(",")] if _STEPS.fullmatch(spaceless) else []
    if not steps or steps != sorted(set(steps)) or not 0 < steps[0] <= steps[-1] <= _WHOLE:
        raise ValueError(f"its annotation {STEPS} is {text[:60]!r}, not rising percents by commas, such as 1,5,25,50")
    if steps[0] > max_first_percent:
        raise ValueError(f"its annotation {STEPS} begins with {steps[0]} %, and at most {max_first_percent} % is taken")
    return ",".join(map(str, steps if steps[-1] == _WHOLE else [*steps, _WHOLE]))


def image_of(uri: str) -> OciAddress | None:
    """Return the address of an image whose digest is a part of it; ``None``: it is none."""
    try:
        address = oci_address(uri)
    except ValueError:
        return None
    return None if address.digest is None else address


def names_same_image(uri: str, pinned: str) -> bool:
    """Whether two addresses name the same content of the same repository, by whatever tag."""
    one, other = image_of(uri), image_of(pinned)
    return one is not None and other is not None and one._replace(tag=None) == other._replace(tag=None)
