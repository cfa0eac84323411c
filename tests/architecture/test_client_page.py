"""The client's reference page has its classes, fields, methods and arguments, and no others."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import understudy.client
from understudy.client import Client

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "client.md").read_text(encoding="utf-8")
CLIENTS = {"Client", "AsyncClient"}
TOLD_IN_WORDS = {"NO_RETRIES", "ProxyAway"} | CLIENTS


def rows(head: str) -> dict[str, list[str]]:
    """Return the rows of tables that begin with this head: the first cell's name, and the names in the second."""
    tables = re.findall(rf"^\| {re.escape(head)} .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    cells = [line.split("|")[1:3] for table in tables for line in table.splitlines()]
    return {first.strip(" `"): re.findall(r"`(\w+)`", second) for first, second in cells}


def fields_of(kind: Any) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(kind._fields)


def test_every_class_is_on_the_page_with_its_fields_and_no_other_is():
    classes = {
        name: getattr(understudy.client, name) for name in understudy.client.__all__ if name not in TOLD_IN_WORDS
    }

    assert rows("class") == {name: fields_of(kind) for name, kind in classes.items()}
    assert all(f"`{name}`" in PAGE for name in TOLD_IN_WORDS)


def test_every_method_is_on_the_page_with_its_arguments_and_no_other_is():
    methods = {name: method for name, method in vars(Client).items() if not name.startswith("_")}

    assert rows("method") == {
        name: [argument for argument in inspect.signature(method).parameters if argument != "self"]
        for name, method in methods.items()
    }
    assert list(rows("argument")) == list(inspect.signature(Client).parameters)
