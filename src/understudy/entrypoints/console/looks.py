"""Templates and static files: rendered with escapes, and served under the digest of their content."""

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from understudy.core.alerts.alerts import RUNBOOKS
from understudy.entrypoints.cli.shared.rendering import with_marks
from understudy.entrypoints.console.views.links import model_path

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_DIGEST_CHARACTERS = 12
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|[dhms])(?!\w))")
_ALL_RUNBOOKS = "README.md"
RUNBOOK_OF_PAGES = {
    "rollout": "RolledBack.md",
    "verdicts": "RolledBack.md",
    "model": "GuardFailed.md",
    "act": "RolledBack.md",
    "policy": "PolicyGenerationSplit.md",
    "change": "PolicyGenerationSplit.md",
    "audit": "PolicyGenerationSplit.md",
    "start": "README.md#the-monitors-own-incidents",
    "begin": "README.md#the-monitors-own-incidents",
    "versions": "VersionNotLoaded.md",
    "experiments": "OutcomesLate.md",
    "experiment": "OutcomesLate.md",
    "drift": "InputDrift.md",
    "shadow": "ShadowDropping.md",
    "prediction": "PredictionLogBehind.md",
    "entity": "PredictionLogBehind.md",
}
"""What a page is about has gone wrong: what to do then."""


class StaticFile:
    """A file that browsers may keep for ever: its address changes with it."""

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        self.media_type = _TYPES[path.suffix]
        self.address = f"/static/{sha256(self.content).hexdigest()[:_DIGEST_CHARACTERS]}/{path.name}"


def read_static(folder: Path = _HERE / "static") -> Mapping[str, StaticFile]:
    """Return the files that pages load, by their names."""
    return {path.name: StaticFile(path) for path in sorted(folder.iterdir()) if path.suffix in _TYPES}


class Templates:
    """The pages' templates; every value is escaped, and a name that is not there is an error.

    Args:
        files: What pages load.
        runbooks_url: Where ``docs/runbooks`` is published; without it no page links there.
    """

    def __init__(self, files: Mapping[str, StaticFile], runbooks_url: str | None = None) -> None:
        addresses = tuple((name, file.address) for name, file in files.items())
        self._environment = _environment(addresses, (runbooks_url or "").rstrip("/"))

    def prepare(self) -> None:
        """Compile all of them, which takes 0.2 s of a core: no first visitor of a page waits for that."""
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Return a page, or a part of one."""
        help_page = RUNBOOK_OF_PAGES.get(name.removesuffix(".html"), _ALL_RUNBOOKS)
        return self._environment.get_template(name).render({"help_page": help_page, **values})


@lru_cache(maxsize=4)
def _environment(addresses: tuple[tuple[str, str], ...], runbooks_url: str) -> Environment:
    """Return what compiles templates: once in a process, whose consoles share what was compiled."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["model_path"] = model_path
    made.filters["shell"] = shlex.quote
    made.filters["unbroken"] = unbroken
    made.globals["runbooks"] = runbooks_url
    # Of a form that is shown for the first time: nothing was typed, and nothing is wrong.
    made.globals["typed"] = made.globals["wrong"] = MappingProxyType({})
    made.globals["runbook_of"] = {kind.value.replace("_", " "): page for kind, page in RUNBOOKS.items()}
    made.globals["static"] = dict(addresses)
    return made


def unbroken(text: str) -> str:
    """Return a text in which no line ends between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def _shown(value: object) -> object:
    """Return a value as it is shown: with marks in place of characters that would turn or hide what stands beside."""
    return with_marks(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
