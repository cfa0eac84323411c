"""The reference pages name everything that the code has, and nothing that it has not."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from tools.make_module_index import PAGE as ARCHITECTURE
from tools.make_module_index import filled, index, packages
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.model_servers.connect import CA_PREFIX, TOKEN_PREFIX
from understudy.adapters.telemetry.prometheus import COUNTERS, GAUGES, HISTOGRAMS, PrometheusTelemetry
from understudy.core.requests.predict import parse_predict
from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.entrypoints.cli.shared.errors import ExitCode, exit_code_for
from understudy.entrypoints.cli.shared.startup.noun_group import load
from understudy.entrypoints.cli.shared.startup.nouns import NOUNS
from understudy.entrypoints.proxy.messages.problems import STATUS
from understudy.errors import leaf_errors
from understudy.settings import FILE_SUFFIX, Settings, is_secret

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
DECISIONS = sorted((DOCS / "adr").glob("[0-9]*.md"))


def shown_path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def table_rows(name: str) -> list[list[str]]:
    """Return the cells of every table row of a reference page whose first cell is code or a code of an error."""
    lines = [line.strip() for line in page(name).splitlines() if re.match(r"\| (`|E\d)", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


def named_in(cell: str) -> tuple[str, ...]:
    """Return what stands between backticks."""
    return tuple(re.findall(r"`([^`]+)`", cell))


def section(name: str, title: str) -> str:
    return page(name).split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


# -- settings ----------------------------------------------------------------------------------------------------------


def variable_of(field: str) -> str:
    alias = Settings.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else f"UNDERSTUDY_{field.upper()}"


def default_text(default: Any) -> str:
    if isinstance(default, SecretStr):
        return default.get_secret_value()
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default is None else str(default)


def test_every_setting_is_documented_with_its_default_and_no_other_is():
    documented = {named_in(row[0])[0]: row[1].strip("`") for row in table_rows("settings.md")}

    known = {
        variable_of(name): default_text(field.default)
        for name, field in Settings.model_fields.items()
        if field.default is not PydanticUndefined
    }
    made = {variable_of(name) for name, field in Settings.model_fields.items() if field.default is PydanticUndefined}

    assert {name: default for name, default in documented.items() if name not in made} == known
    assert made <= documented.keys()


def test_no_page_names_a_variable_that_nothing_reads():
    secrets = {variable_of(name) for name, field in Settings.model_fields.items() if is_secret(field)}
    known = {variable_of(name) for name in Settings.model_fields} | {
        *(f"{name}{FILE_SUFFIX}" for name in secrets),
        "UNDERSTUDY_TEST_POSTGRES",
        "UNDERSTUDY_TEST_RANDOM",
    }

    named = {
        (shown_path(path), name)
        for path in PAGES
        for name in re.findall(r"UNDERSTUDY_[A-Z][A-Z_]*[A-Z]", text_of(path))
    }

    assert {
        (page, name) for page, name in named if name not in known and not name.startswith((TOKEN_PREFIX, CA_PREFIX))
    } == set()


# -- metrics -----------------------------------------------------------------------------------------------------------


def known_metrics() -> dict[str, tuple[str, tuple[str, ...]]]:
    counters = {name: ("counter", labels) for name, (_, labels) in COUNTERS.items()}
    gauges = {name: ("gauge", labels) for name, (_, labels) in GAUGES.items()}
    histograms = {name: ("histogram", labels) for name, (_, labels, _) in HISTOGRAMS.items()}
    return {**counters, **gauges, **histograms, "build_info": ("gauge", ("version",))}


def test_every_metric_is_documented_with_its_kind_and_labels_and_no_other_is():
    rows = [row for row in table_rows("metrics.md") if row[1] in {"counter", "gauge", "histogram"}]

    documented = {named_in(row[0])[0]: (row[1], named_in(row[2])) for row in rows}

    assert documented == known_metrics()


def test_the_page_for_a_scrape_has_the_documented_metrics_and_no_other():
    exposition = PrometheusTelemetry().exposition()[0].decode()

    shown = {name for name in re.findall(r"^# TYPE (\S+) ", exposition, re.MULTILINE) if not name.endswith("_created")}

    assert shown == set(known_metrics())


# -- errors ------------------------------------------------------------------------------------------------------------


def test_every_error_is_documented_with_its_statuses_and_no_other_is():
    documented = {
        row[0]: (named_in(row[1])[0], int(row[2]), int(row[3])) for row in table_rows("errors.md") if row[0][0] == "E"
    }

    known = {error.code: (error.__name__, STATUS[error], int(exit_code_for(error))) for error in leaf_errors()}

    assert documented == known


def test_no_page_names_an_error_code_that_there_is_not():
    known = {error.code for error in leaf_errors()}

    named = {(shown_path(path), code) for path in PAGES for code in re.findall(r"\bE\d{3}\b", text_of(path))}

    assert {(page, code) for page, code in named if code not in known} == set()


# -- commands ----------------------------------------------------------------------------------------------------------


def known_commands() -> dict[str, set[str]]:
    """Return each command line with its options."""
    found: dict[str, set[str]] = {}
    waiting = [(f"understudy {noun}", load(noun)) for noun in NOUNS]
    while waiting:
        words, command = waiting.pop()
        verbs = getattr(command, "commands", None)
        if verbs is not None:
            waiting += [(f"{words} {name}", verb) for name, verb in verbs.items()]
            continue
        options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
        found[words] = {option for one in options for option in (*one.opts, *one.secondary_opts)}
    return found


def test_every_command_is_documented_with_its_options_and_no_other_is():
    rows = [row for row in table_rows("cli.md") if row[0].startswith("`understudy ")]

    documented = {named_in(row[0])[0]: set(named_in(row[2])) for row in rows}

    assert documented == known_commands()


def test_every_exit_code_is_documented_and_no_other_is():
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", section("cli.md", "Exit codes"), re.MULTILINE)}

    assert documented == {int(code) for code in ExitCode}


def test_commands_that_pages_show_exist_with_their_options():
    known = known_commands()

    for path in PAGES:
        blocks = re.findall(r"```sh\n(.*?)```", text_of(path), re.DOTALL)
        for words in re.findall(r"^(?:[A-Z_]+=\S+ )*(understudy .*)$", "".join(blocks), re.MULTILINE):
            command = max((name for name in known if f"{words} ".startswith(f"{name} ")), key=len, default=None)
            assert command is not None, (shown_path(path), words)
            assert set(re.findall(r"(?<=\s)--[a-z-]+", words)) <= known[command], (shown_path(path), words)


# -- examples and links ------------------------------------------------------------------------------------------------


def schema_examples() -> list[dict[str, Any]]:
    blocks = re.findall(r"```json\n(.*?)```", section("schema.md", "Worked examples"), re.DOTALL)
    return [orjson.loads(block) for block in blocks]


def test_the_worked_examples_cover_each_protocol_and_compile():
    examples = schema_examples()

    for example in examples:
        assert compile_input_schema(example["input_schema"]).features
        assert compile_output_schema(example["output_schema"]) is not None

    assert {example["protocol"] for example in examples} == {"oip", "tfserving", "torchserve", "json"}


@pytest.mark.parametrize("path", [ROOT / "README.md", DOCS / "reference" / "http.md"], ids=shown_path)
def test_the_first_request_that_a_page_shows_is_one_that_the_demo_answers(path):
    shown = re.search(r'\{"entity_id": "customer-42",\s+"inputs": \{[^}]*\}\}', path.read_text(encoding="utf-8"))

    assert shown is not None
    request = parse_predict(shown.group().encode())
    schema = compile_input_schema(example_version("visits", 1).input_schema)
    assert schema.assemble(request.inputs).digest


@cache
def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_nowhere(path: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (path.parent / file).resolve() if file else path
    return not target.exists() or (anchor != "" and anchor not in anchors_of(target))


def test_every_relative_link_of_a_page_resolves():
    links = {(path, link) for path in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", text_of(path))}

    dead = {(shown_path(path), link) for path, link in links if "://" not in link and leads_nowhere(path, link)}

    assert dead == set()


def without_links(text: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)


def title_and_status(decision: Path) -> tuple[str, str]:
    """Return what a decision's first two lines of text say: its title, and its status without links."""
    title, status = decision.read_text(encoding="utf-8").split("\n\n", 2)[:2]
    return title.removeprefix("# "), without_links(status.removeprefix("Status: "))


def test_the_list_of_decisions_names_each_once_with_its_title_and_status():
    index = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")

    rows = re.findall(r"^\| (\d+) \| \[(.+)\]\((\S+)\) \| (.+) \|$", index, re.MULTILINE)
    listed = sorted((file, f"{number}. {title}", status) for number, title, file, status in rows)

    assert DECISIONS
    assert len({path.name[:4] for path in DECISIONS}) == len(DECISIONS)
    assert listed == [(path.name, *title_and_status(path)) for path in DECISIONS]


def test_a_decision_has_the_number_of_its_file_and_a_known_status():
    for path in DECISIONS:
        title, status = title_and_status(path)
        number = int(path.name[:4])
        assert title.startswith(f"{number}. ")
        assert re.fullmatch(r"accepted|(amended|superseded) by ADR \d+( and ADR \d+)*", status), title
        assert all(int(later) > number for later in re.findall(r"ADR (\d+)", status)), title


def test_a_link_to_a_decision_names_the_number_of_its_file():
    links = {
        (path.stem, shown, linked)
        for path in DECISIONS
        for shown, linked in re.findall(r"\[ADR (\d+)\]\((\d+)-[^)]*\)", text_of(path))
    }

    assert {(page, shown, linked) for page, shown, linked in links if int(shown) != int(linked)} == set()


def test_a_decision_has_its_four_headings():
    headings = {path.stem: re.findall(r"^## (.+)$", text_of(path), re.MULTILINE) for path in DECISIONS}

    assert {
        page: found for page, found in headings.items() if found != ["Context", "Decision", "Measured", "Consequences"]
    } == {}


# -- modules -----------------------------------------------------------------------------------------------------------


def test_the_architecture_page_lists_each_module_with_its_first_line():
    shown = ARCHITECTURE.read_text(encoding="utf-8")

    assert shown == filled(shown, index()), "run: make module-index"


def test_each_module_says_in_its_first_line_what_it_holds():
    without = [f"{name}/{module}" for name, _, modules in packages() for module, text in modules if not text]

    assert without == []
