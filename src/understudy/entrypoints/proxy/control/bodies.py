"""The bodies of the control plane: pure functions from bytes to what is asked, or to everything that is wrong."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from understudy.core.requests.strict_json import parse
from understudy.core.schema.features import MAX_NAME_SHOWN, MAX_VIOLATIONS
from understudy.errors import BodyInvalid, GenerationNotNamed, HeaderInvalid, Violation
from understudy.lifecycle.registry import MAX_LABEL
from understudy.rollout.start import plan_problems

MAX_BODY_BYTES = 32_768
MAX_REASON, MAX_SALT, MAX_CATEGORIES = 1_000, 255, 1_000
_MAX_DIGITS = 18
"""As many digits as a generation or an id may have and still fit 64 bits."""
_ROLES = ("champion", "challenger")


class StartAsked(NamedTuple):
    """A rollout that is asked for."""

    version: str
    plan: str | Mapping[str, Any] | None
    """``None`` for the plan that the risk asks for."""
    salt: str | None
    """What is hashed meanwhile; ``None`` for the model's name."""
    reason: str | None


class ChangeAsked(NamedTuple):
    """A change of a policy."""

    changes: Mapping[str, Any]
    reason: str | None


def read_start(body: bytes, fresh_salt: Callable[[], str], *, dry_run: bool) -> StartAsked:
    """Return the rollout that a body asks for; one that names no salt gets a fresh one.

    Raises:
        MalformedBody: It is no JSON.
        BodyInvalid: With everything that is wrong with it; a reason is only missing when something is to happen.
    """
    reader = _Reader(parse(body), ("version", "plan", "salt", "reason"))
    plan = reader.plan()
    asked = StartAsked(
        version=reader.text("version", MAX_LABEL) or "",
        plan=plan,
        salt=reader.salt(plan, fresh_salt),
        reason=reader.text("reason", MAX_REASON, may_be_null=dry_run),
    )
    reader.finish()
    return asked


def read_reason(body: bytes) -> str | None:
    """Return the reason that an optional body gives.

    Raises:
        MalformedBody: It is no JSON.
        BodyInvalid: With everything that is wrong with it.
    """
    reader = _Reader(parse(body) if body else {}, ("reason",))
    reason = reader.text("reason", MAX_REASON, may_be_null=True)
    reader.finish()
    return reason


def read_change(body: bytes) -> ChangeAsked:
    """Return the change of a policy that a body asks for.

    Raises:
        MalformedBody: It is no JSON.
        BodyInvalid: With everything that is wrong with it, or it names nothing to change.
    """
    reader = _Reader(parse(body), (*_CHANGES, "reason"))
    changes = {name: read(reader, name) for name, read in _CHANGES.items() if name in reader.document}
    reason = reader.text("reason", MAX_REASON, may_be_null=True)
    if not changes:
        reader.refuse("", f"expected at least one of {', '.join(_CHANGES)}")
    reader.finish()
    return ChangeAsked(changes, reason)


def read_generation(if_match: str | None) -> int:
    """Return the generation that ``If-Match`` names.

    Raises:
        GenerationNotNamed: There is no such header.
        HeaderInvalid: It names anything but one generation.
    """
    if if_match is None:
        raise GenerationNotNamed
    digits = if_match.strip().removeprefix('"').removesuffix('"')
    if f'"{digits}"' != if_match.strip() or number_of(digits) is None:
        raise HeaderInvalid('if-match: expected one ETag of a policy, such as "41"; "0" while there is no policy')
    return int(digits)


def number_of(text: str) -> int | None:
    """Return a number of Postgres' as a caller writes it; ``None`` when it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


class _Reader:
    """Reads the fields of a body, and gathers what is wrong with them."""

    def __init__(self, document: Any, known: Sequence[str]) -> None:
        self._violations: list[Violation] = []
        self.document: Mapping[str, Any] = document if isinstance(document, dict) else {}
        if not isinstance(document, dict):
            self.refuse("", "expected an object")
        unknown = (name[:MAX_NAME_SHOWN] for name in self.document if name not in known)
        for name in islice(unknown, MAX_VIOLATIONS):
            self.refuse(f"/{_escaped(name)}", f"is not a field of this body; there are {', '.join(known)}")

    def refuse(self, pointer: str, detail: str) -> None:
        self._violations.append(Violation(pointer, detail))

    def finish(self) -> None:
        """Raise with what was found, if anything was."""
        if self._violations:
            count = len(self._violations)
            raise BodyInvalid(f"{count} problem{'s' if count > 1 else ''}", tuple(self._violations))

    def text(self, name: str, longest: int, *, may_be_null: bool = False) -> str | None:
        value = self.document.get(name)
        if value is None and may_be_null:
            return None
        if isinstance(value, str) and 0 < len(value) <= longest:
            return value
        missing = "" if name in self.document else "missing; "
        null = " or null" if may_be_null else ""
        self.refuse(f"/{name}", f"{missing}expected a string of 1 to {longest:,} characters{null}")
        return None

    def salt(self, plan: str | Mapping[str, Any] | None, fresh_salt: Callable[[], str]) -> str | None:
        """Return the body's salt, else the plan's own, else a fresh one."""
        if "salt" in self.document:
            return self.text("salt", MAX_SALT, may_be_null=True)
        named: str | None = plan.get("salt") if isinstance(plan, Mapping) else None
        return named or fresh_salt()

    def percent(self, name: str) -> int | None:
        value = self.document[name]
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100:  # noqa: PLR2004 - percent
            return value
        self.refuse(f"/{name}", "expected a whole number from 0 to 100")
        return None

    def boolean(self, name: str) -> bool | None:
        value = self.document[name]
        if isinstance(value, bool):
            return value
        self.refuse(f"/{name}", "expected true or false")
        return None

    def categories(self, name: str) -> Mapping[str, str] | None:
        value = self.document[name]
        if not isinstance(value, dict) or len(value) > MAX_CATEGORIES:
            self.refuse(f"/{name}", f"expected an object of at most {MAX_CATEGORIES:,} categories")
            return None
        for category, role in islice(value.items(), MAX_VIOLATIONS):
            if role not in _ROLES:
                self.refuse(f"/{name}/{_escaped(category[:MAX_NAME_SHOWN])}", f"expected one of {', '.join(_ROLES)}")
        return value

    def plan(self) -> str | Mapping[str, Any] | None:
        source = self.document.get("plan")
        if source is None:
            return None
        if not isinstance(source, str | dict):
            self.refuse("/plan", "expected a plan's name, weights such as 2,10,50,100, an object, or null")
            return None
        for pointer, detail in plan_problems(source):
            self.refuse(f"/plan{pointer}" if isinstance(source, dict) else "/plan", detail)
        return source


def _version(reader: _Reader, name: str) -> str | None:
    return reader.text(name, MAX_LABEL)


def _version_or_nobody(reader: _Reader, name: str) -> str | None:
    return reader.text(name, MAX_LABEL, may_be_null=True)


def _salt(reader: _Reader, name: str) -> str | None:
    return reader.text(name, MAX_SALT, may_be_null=True)


_CHANGES: Mapping[str, Callable[[_Reader, str], Any]] = {
    "champion": _version,
    "challenger": _version_or_nobody,
    "challenger_weight": _Reader.percent,
    "shadow": _version_or_nobody,
    "shadow_percent": _Reader.percent,
    "fallback": _Reader.boolean,
    "salt": _salt,
    "category_roles": _Reader.categories,
    "input_sample_percent": _Reader.percent,
}
"""What a caller may change, and how it is read. What belongs to a rollout is changed by that."""


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
