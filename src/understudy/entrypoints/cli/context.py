"""``understudy context``: proxies that commands go to with a key, without a login of the database."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.text import Text

from understudy.client.connection import is_plain
from understudy.entrypoints.cli.shared.contexts.chosen_proxy import chosen_proxy
from understudy.entrypoints.cli.shared.contexts.context_file import (
    Context,
    Contexts,
    checked_url,
    default_path,
    is_for_others,
    read_contexts,
    write_contexts,
)
from understudy.entrypoints.cli.shared.environment import read_settings
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import Column, a_table, advise, facts, show

app = typer.Typer(no_args_is_help=True, help="Name proxies that commands go to with a key.", add_completion=False)
ContextName = Annotated[str, typer.Argument(metavar="NAME", help="The context's name.")]
MAX_NAME = 64


@app.command("set")
def set_context(
    *,
    name: ContextName,
    url: Annotated[str, typer.Option(metavar="URL", help="The proxy's, such as https://predict.internal.")],
    key_file: Annotated[
        Path | None, typer.Option("--key-file", metavar="FILE", help="A file that holds the key: <id>.<secret>.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option("--key-env", metavar="VARIABLE", help="The variable that holds the key.")
    ] = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="Without the key that it had.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a context, or change its proxy or key. It names where the key is; the key itself is not stored."""
    if sum((key_file is not None, key_env is not None, no_key)) > 1:
        what = "several of --key-file, --key-env and --no-key were given"
        raise CommandRefused(ExitCode.USAGE, what, "Give one of them.")
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise CommandRefused(ExitCode.USAGE, f"a name has 1 to {MAX_NAME} characters", "Choose a short one: prod.")
    context = Context(checked_url(url), None if key_file is None else str(key_file.absolute()), key_env or None)
    path = _path()
    contexts = read_contexts(path)
    before = contexts.by_name.get(name)
    if before is not None and not context.has_key and not no_key:
        context = context._replace(key_file=before.key_file, key_env=before.key_env)
    contexts = contexts.with_context(name, context)
    write_contexts(path, contexts)
    if key_file is not None and is_for_others(key_file):
        advise(f"! {key_file} can be read by other users of this machine: chmod 600 {quote(str(key_file))}")
    if is_plain(context.url):
        advise("! http:// is not encrypted: the network on the way to the proxy can read the key")
    key = f"with the key of {context.where_the_key_is()}" if context.has_key else "without a key"
    used = ", and in use" if contexts.current == name else f" → understudy context use {quote(name)}"
    head = Text("✔ ", "green").append(f"context {name} is set {key}{used}")
    show({"context": _document(name, contexts)}, head, as_json=as_json)


@app.command()
def use(*, name: ContextName, as_json: AsJson = False) -> None:
    """Have commands go to this context's proxy, where neither DATABASE_URL nor a demo is there."""
    path = _path()
    contexts = read_contexts(path)
    context = contexts.named(name)
    contexts = contexts._replace(current=name)
    write_contexts(path, contexts)
    head = Text("✔ ", "green").append(f"commands go to {context.url}")
    show({"context": _document(name, contexts)}, head, as_json=as_json)


@app.command("list")
def list_contexts(*, as_json: AsJson = False) -> None:
    """List the contexts; the one in use has a mark."""
    contexts = read_contexts(_path())
    rows = [
        ("●" if name == contexts.current else "", name, context.url, context.where_the_key_is())
        for name, context in contexts.by_name.items()
    ]
    columns = [Column(""), Column("context"), Column("url"), Column("key", drop=1)]
    text = a_table(columns, rows) if rows else "There is no context; understudy context set makes one."
    document = {"contexts": [_document(name, contexts) for name in contexts.by_name], "current": contexts.current}
    show(document, text, as_json=as_json)


@app.command("show")
def show_context(
    *,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="By default the one in use.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a context, and where commands go from here."""
    contexts, (goes, problem) = read_contexts(_path()), _where_commands_go()
    said = ("commands go to", f"nowhere: {problem.detail}" if problem is not None else str(goes))
    found = {"commands_go_to": goes, "problem": None if problem is None else problem.detail}
    asked = name or contexts.current
    if asked is None:
        show({"context": None, **found}, "No context is in use.", facts([said]), as_json=as_json)
    else:
        context = contexts.named(asked)
        rows = [("url", context.url), ("key", context.where_the_key_is()), said]
        show({"context": _document(asked, contexts), **found}, Text(asked, "bold"), facts(rows), as_json=as_json)
    if problem is not None:
        advise(f"→ {problem.next_step}")
        raise typer.Exit(problem.exit_code)


def _where_commands_go() -> tuple[str | None, CommandRefused | None]:
    """Return where commands go, and by what; or why what is named cannot be used, such as a variable without a key."""
    try:
        chosen = chosen_proxy(read_settings())
    except CommandRefused as problem:
        return None, problem
    return "the database" if chosen is None else f"{chosen.place.url}, by {chosen.chosen_by}", None


@app.command()
def remove(*, name: ContextName, as_json: AsJson = False) -> None:
    """Remove a context; the file or variable with its key stays."""
    path = _path()
    contexts = read_contexts(path)
    contexts.named(name)
    write_contexts(path, contexts.without(name))
    show({"removed": name}, Text("✔ ", "green").append(f"context {name} is removed"), as_json=as_json)


def _path() -> Path:
    found = read_settings().contexts or default_path()
    if found is None:
        next_step = "Name a file in UNDERSTUDY_CONTEXTS."
        raise CommandRefused(ExitCode.USAGE, "this user has no home to keep contexts in", next_step)
    return found


def _document(name: str, contexts: Contexts) -> dict[str, Any]:
    return {"name": name, **contexts.by_name[name]._asdict(), "current": name == contexts.current}
