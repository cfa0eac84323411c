"""The file of contexts: a URL, and where the key is, for each. No key is ever in it."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode

MAX_KEY_BYTES = 4_096
MAX_FILE_BYTES = 1_048_576
_OWNER_ALONE = 0o600
_SETTING = "UNDERSTUDY_CONTEXTS"
_ROUTES = "/v1"
"""What every route of a proxy begins with."""


class Context(NamedTuple):
    """A proxy, and where its key is."""

    url: str
    key_file: str | None = None
    key_env: str | None = None
    """The variable that holds the key."""

    @property
    def has_key(self) -> bool:
        """Whether it names a key at all."""
        return self.key_file is not None or self.key_env is not None

    def credential(self) -> str | None:
        """Return the key; ``None`` for a context without one.

        Raises:
            CommandRefused: The file or the variable that is to have it has none.
        """
        if self.key_env is not None:
            return checked_key(os.environ.get(self.key_env, ""), self.key_env)
        return None if self.key_file is None else _read_key(Path(self.key_file))

    def where_the_key_is(self) -> str:
        """Return that in words; never the key."""
        if self.key_env is not None:
            return f"variable {self.key_env}"
        return "none" if self.key_file is None else f"file {self.key_file}"


class Contexts(NamedTuple):
    """All contexts by name, and the one in use."""

    by_name: Mapping[str, Context] = {}
    current: str | None = None

    def named(self, name: str) -> Context:
        """Return a context.

        Raises:
            CommandRefused: There is none of this name.
        """
        if name not in self.by_name:
            there = ", ".join(self.by_name) or "none"
            next_step = f"There are: {there}. understudy context set makes one."
            raise CommandRefused(ExitCode.NOT_FOUND, f"there is no context {name!r}", next_step)
        return self.by_name[name]

    def with_context(self, name: str, context: Context) -> Self:
        """Return them with one more; the first one is in use at once."""
        return self._replace(by_name={**self.by_name, name: context}, current=self.current or name)

    def without(self, name: str) -> Self:
        """Return them without one."""
        left = {other: context for other, context in self.by_name.items() if other != name}
        return self._replace(by_name=left, current=None if self.current == name else self.current)


def default_path() -> Path | None:
    """Return where the file is unless a setting says it; ``None`` for a user without a home, as in some containers."""
    try:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:
        return None
    return folder / "understudy" / "contexts.json"


def read_contexts(path: Path | None) -> Contexts:
    """Return what the file has; nothing where there is none.

    Raises:
        CommandRefused: It cannot be read, or is no such file.
    """
    if path is None:
        return Contexts()
    try:
        content = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else b""
        document = orjson.loads(content)
        by_name = {str(name): _context_of(one) for name, one in document["contexts"].items()}
        current = document["current"]
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as problem:
        raise CommandRefused(ExitCode.USAGE, f"{path} cannot be read: {problem.strerror}", _NEXT) from None
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
        raise CommandRefused(ExitCode.USAGE, f"{path} is no file of contexts", _NEXT) from None
    return Contexts(by_name, current if current in by_name else None)


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file as a whole; only its owner may read it.

    Raises:
        CommandRefused: It cannot be written.
    """
    by_name = {name: context._asdict() for name, context in contexts.by_name.items()}
    content = orjson.dumps({"current": contexts.current, "contexts": by_name}, option=orjson.OPT_INDENT_2)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            beside.unlink()
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ALONE), "wb") as file:
            file.write(content + b"\n")
        beside.replace(path)
    except OSError as problem:
        raise CommandRefused(ExitCode.USAGE, f"{path} cannot be written: {problem.strerror}", _NEXT) from None


_NEXT = f"Correct it, or name another file with {_SETTING}."


def checked_url(url: str, of: str = "--url") -> str:
    """Return the URL of a proxy, which is ``of`` an option or a variable.

    Raises:
        CommandRefused: It is none, has a login in it, or ends in the path of a proxy's routes.
    """
    from understudy.client.connection import Connection  # noqa: PLC0415 - a client of HTTP, for who has a URL

    try:
        found = Connection.of(url or "none", "none").url
    except ValueError:
        detail = f"{of}: expected a URL such as https://predict.internal, without a login and parameters"
        raise CommandRefused(
            ExitCode.USAGE, detail, "Name the proxy's address; the key has options of its own."
        ) from None
    if found.endswith(_ROUTES):
        detail = f"{of}: it ends in {_ROUTES}, which each command adds itself"
        raise CommandRefused(ExitCode.USAGE, detail, f"Leave {_ROUTES} out.")
    return found


def checked_key(text: str, of: str) -> str:
    """Return the key that a file or a variable has, without the white space around it.

    Raises:
        CommandRefused: It is none; it is not repeated.
    """
    from understudy.client.connection import is_key  # noqa: PLC0415 - as above

    found = text.strip()
    if not found or len(found) > MAX_KEY_BYTES or not is_key(found):
        raise CommandRefused(ExitCode.USAGE, f"{of} holds no key", _KEY_NEXT)
    return found


def is_for_others(path: Path) -> bool:
    """Whether other users of the machine may read a file, if it is there."""
    try:
        return bool(path.stat().st_mode & 0o004)
    except OSError:
        return False


def _context_of(document: Any) -> Context:
    from understudy.client.connection import Connection  # noqa: PLC0415 - as above

    named = {name: document.get(name) for name in Context._fields}
    if not isinstance(named["url"], str) or not all(
        value is None or isinstance(value, str) for value in named.values()
    ):
        raise TypeError
    Connection.of(named["url"] or "none", "none")  # no login, which would be shown
    return Context(**named)


def _read_key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return checked_key(file.read(MAX_KEY_BYTES + 1).decode(), str(path))
    except OSError as problem:
        raise CommandRefused(ExitCode.USAGE, f"{path} cannot be read: {problem.strerror}", _KEY_NEXT) from None
    except UnicodeDecodeError:
        raise CommandRefused(ExitCode.USAGE, f"{path} holds no key", _KEY_NEXT) from None


_KEY_NEXT = "It holds <id>.<secret> and nothing else; understudy context set NAME names another file or variable."
