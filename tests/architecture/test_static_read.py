"""What a reader of the source would look for: no pickle, no shell, no SQL from values, a bound of each wait and store.

Ruff's security rules (``S``) read the rest: planted passwords, weak hashes, files that anyone may write.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "understudy"
MODULES = sorted(path for path in SRC.rglob("*.py") if "_pb2" not in path.name)

UNPICKLING = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"}
RUNNING_TEXT = {"eval", "exec", "compile", "__import__"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
SQL = re.compile(r"\b(SELECT\s|INSERT INTO\s|UPDATE\s+\w+\s+SET\s|DELETE FROM\s|CREATE\s+\w+|ALTER\s+\w+|DROP\s+\w+)")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")

SQL_WITH_NAMES = {
    "adapters/postgres/features.py": "the table's name, a setting, matched against an identifier's pattern and quoted",
    "adapters/postgres/registry/registry_rows.py": "names of columns, each of which is in the list POLICY_COLUMNS",
    "adapters/postgres/prediction_log/entity_index.py": "names of the log's months as the catalogue has them, quoted",
    "adapters/postgres/rollout/rollout_rows.py": "_stale() is called with two literals while the module is read",
    "adapters/lake/reading/question.py": "names of columns of a log's row, which this release's questions name",
    "adapters/archive/duckdb_log.py": "views over our own files, quoted; DuckDB takes no parameters there",
    "adapters/postgres/prediction_log/live_log.py": "a person's own SELECT, by their own login, and it can only read",
    "adapters/embedded/cluster.py": "ALTER ROLE takes no parameters; the password has letters, digits, - and _ only",
    "registry/database_preflight.py": "advice that a person reads; nothing runs it",
    "adapters/migrations/__init__.py": "advice that a person reads, with numbers of processes; nothing runs it",
    "adapters/migrations/preflight.py": "names of tables and columns as the catalogue has them, quoted",
}
"""Modules in which SQL is put together from more than constants, and why that is safe."""

WAITS = {
    "asyncpg.connect": {"timeout", "command_timeout"},
    "httpx2.AsyncClient": {"timeout"},
    "httpx2.Client": {"timeout"},
    "subprocess.run": {"timeout"},
    "socket.create_connection": {"timeout"},
    "BlockingConnectionPool.from_url": {"timeout", "socket_timeout", "socket_connect_timeout"},
}
"""Calls that may hang, with the arguments that bound them."""
BOUNDED_AROUND = {"asyncio.open_connection", "getaddrinfo", "Redis.from_url"}
"""Calls that may hang and take no time-out: they stand inside ``asyncio.timeout``."""
BOUNDED_BY_CALLER = {
    "client/deadlines.py": "the system's resolver has its own time-out, which no thread can cut short",
    "adapters/http/name_resolver.py": "in a daemon thread of its own; addresses() waits RESOLVE_SECONDS for it",
    "entrypoints/cli/db/sql_prompt.py": "a person's prompt lasts as long as that person wishes",
    "entrypoints/demo/keep_alive.py": "_exchange has one caller, which bounds it",
}

KEEPING = {"cache", "functools.cache", "lru_cache"}
STORES = {"deque": "maxlen", "asyncio.Queue": "maxsize", "queue.Queue": "maxsize", "lru_cache": "maxsize"}
BOUNDED_OTHERWISE = {
    "shipping/kept_batches.py": "max_bytes of the spool in all: what is beyond is not kept",
    "serving/upstream/batching.py": "rows of calls wait in it, at most queue_rows (BatchingCaller)",
    "serving/upstream/load_shedding.py": "rows of calls that found the queue full: as many as come in wait_seconds",
    "serving/upstream/row_deadlines.py": "rows under way, and as many that are over (SWEEP_ROWS)",
    "serving/upstream/champion_health.py": "names of one snapshot's models: it is filled again only when it is empty",
    "core/upstream/hedging.py": "the oldest leaves when WINDOW_CALLS are in it",
    "adapters/disk/spool_keeper.py": "at _RETIRED_LIMIT segments the spool begins no other; one folder stands ready; a "
    "group of calls under way waits for a sync",
    "adapters/memory/policy.py": "the twin of a listener, for tests and notebooks",
}
"""Modules with a store that no argument bounds, and what bounds it."""

READ = (
    *(ast.Import, ast.ImportFrom, ast.Call, ast.JoinedStr, ast.BinOp, ast.Attribute),
    *(ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef),
)
"""What the rules look at: every module is parsed and walked once for all of them."""
Nodes = Sequence[ast.AST]


def name_of(node: ast.expr) -> str:
    """Return what is called, as written: ``asyncio.Queue``; for a call on something unnamed its last part."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
        case ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return name_of(value)
    return ""


def calls_in(nodes: Nodes) -> Iterator[tuple[str, ast.Call]]:
    return ((name_of(node.func), node) for node in nodes if isinstance(node, ast.Call))


def keywords_of(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}


def dangers(nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        imported = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        yield from (f"{node.lineno}: imports {name}" for name in imported if name.split(".")[0] in UNPICKLING)  # type: ignore[attr-defined]  # imports have lines
    for name, call in calls_in(nodes):
        if name in RUNNING_TEXT | SHELLS or name.endswith("create_subprocess_shell"):
            yield f"{call.lineno}: calls {name}"
        if any(keyword.arg == "shell" for keyword in call.keywords):
            yield f"{call.lineno}: calls {name} with a shell"
        if name in {"np.load", "numpy.load"} and "allow_pickle" in keywords_of(call):
            yield f"{call.lineno}: unpickles arrays"


def sql_from_values(nodes: Nodes) -> Iterator[str]:
    """F-strings of SQL with anything but constants of a module in them, and SQL put together by ``%`` or ``format``."""
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            if SQL.search(text) and not all(is_constant(value) for value in values):
                yield f"{node.lineno}: SQL from {', '.join(ast.unparse(value) for value in values)}"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and is_sql(node.left):
            yield f"{node.lineno}: SQL from %"
        elif isinstance(node, ast.Attribute) and node.attr == "format" and is_sql(node.value):
            yield f"{node.lineno}: SQL from format()"


def is_sql(text: ast.expr) -> bool:
    return isinstance(text, ast.Constant) and SQL.search(str(text.value)) is not None


def is_constant(value: ast.expr) -> bool:
    names = [node for node in ast.walk(value) if isinstance(node, (ast.Name, ast.Attribute, ast.Call))]
    return all(isinstance(node, ast.Name) and CONSTANT.fullmatch(node.id) for node in names)


def waits_without_a_bound(nodes: Nodes) -> Iterator[str]:
    for name, call in calls_in(nodes):
        missing = WAITS.get(name, set()) - keywords_of(call)
        if missing:
            yield f"{call.lineno}: {name} without {', '.join(sorted(missing))}"
        around = name in BOUNDED_AROUND or name.rpartition(".")[2] in BOUNDED_AROUND
        if around and not any(call is inside for inside in bounded_by_time(nodes)):
            yield f"{call.lineno}: {name} outside of asyncio.timeout"


def bounded_by_time(nodes: Nodes) -> Iterator[ast.AST]:
    """Everything inside of ``asyncio.timeout`` or ``asyncio.wait_for``."""
    for node in nodes:
        match node:
            case ast.AsyncWith(items=items) if any("timeout" in ast.unparse(item.context_expr) for item in items):
                yield from ast.walk(node)
            case ast.Call(func=called) if name_of(called) == "asyncio.wait_for":
                yield from ast.walk(node)


def stores_without_a_bound(nodes: Nodes) -> Iterator[str]:
    for name, call in calls_in(nodes):
        bound = STORES.get(name)
        if bound is not None and bound not in keywords_of(call):
            yield f"{call.lineno}: {name} without {bound}"
        if name.endswith("SimpleQueue") or any(
            keyword.arg in {"maxsize", "maxlen"} and isinstance(keyword.value, ast.Constant) and not keyword.value.value
            for keyword in call.keywords
        ):
            yield f"{call.lineno}: {name} without a bound"
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            kept = any(
                name_of(decorator) in {"cache", "functools.cache", "lru_cache"} for decorator in node.decorator_list
            )
            if kept and (node.args.args or node.args.kwonlyargs):
                yield f"{node.lineno}: {node.name} keeps every answer"


def parsed(source: str) -> Nodes:
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, READ))


RULES: dict[str, tuple[Callable[[Nodes], Iterator[str]], dict[str, str]]] = {
    "no pickle, no shell, no text that is run": (dangers, {}),
    "no SQL from values": (sql_from_values, SQL_WITH_NAMES),
    "every wait has a bound": (waits_without_a_bound, BOUNDED_BY_CALLER),
    "every store has a bound": (stores_without_a_bound, BOUNDED_OTHERWISE),
}


def test_the_source_holds_to_every_rule():
    """One test for all rules: each worker of the gate that has one would parse every module again."""
    found: dict[str, dict[str, list[str]]] = {rule: {} for rule in RULES}
    for path in MODULES:
        nodes = parsed(path.read_text("utf-8"))  # kept no longer: looking through all of them for garbage took as long
        for rule, (find, _) in RULES.items():
            if problems := list(find(nodes)):
                found[rule][path.relative_to(SRC).as_posix()] = problems
    broken = {
        rule: {module: problems for module, problems in found[rule].items() if module not in excused}
        for rule, (_, excused) in RULES.items()
    }
    needless = {rule: sorted(excused.keys() - found[rule].keys()) for rule, (_, excused) in RULES.items()}

    assert broken == {rule: {} for rule in RULES}
    assert needless == {rule: [] for rule in RULES}, "these need no excuse any more"
    assert len(MODULES) > 200


@pytest.mark.parametrize(
    ("rule", "planted"),
    [
        ("no pickle, no shell, no text that is run", "import pickle"),
        ("no pickle, no shell, no text that is run", "from joblib import load"),
        ("no pickle, no shell, no text that is run", "os.system(command)"),
        ("no pickle, no shell, no text that is run", "subprocess.run(command, shell=True, timeout=1)"),
        ("no pickle, no shell, no text that is run", "await asyncio.create_subprocess_shell(command)"),
        ("no pickle, no shell, no text that is run", "eval(text)"),
        ("no SQL from values", "query = f'SELECT * FROM t WHERE id = {number}'"),
        ("no SQL from values", "query = f'DELETE FROM {table.name}'"),
        ("no SQL from values", "query = f'INSERT INTO t VALUES ({quote(name)})'"),
        ("no SQL from values", "query = 'SELECT %s' % name"),
        ("no SQL from values", "query = 'DROP TABLE {}'.format(name)"),
        ("every wait has a bound", "subprocess.run(['ps'])"),
        ("every wait has a bound", "await asyncpg.connect(dsn, timeout=1)"),
        ("every wait has a bound", "client = httpx2.AsyncClient()"),
        ("every wait has a bound", "await asyncio.open_connection(host, port)"),
        ("every wait has a bound", "await loop.getaddrinfo(host, port)"),
        ("every store has a bound", "waiting = deque()"),
        ("every store has a bound", "waiting: asyncio.Queue[int] = asyncio.Queue()"),
        ("every store has a bound", "waiting = queue.SimpleQueue()"),
        ("every store has a bound", "waiting = deque(maxlen=None)"),
        ("every store has a bound", "@cache\ndef square(number): ..."),
        ("every store has a bound", "@lru_cache\ndef square(number): ..."),
        ("every store has a bound", "@lru_cache(maxsize=None)\ndef square(number): ..."),
    ],
)
def test_what_breaks_a_rule_is_found(rule: str, planted: str):
    find, _ = RULES[rule]
    source = f"async def around():\n    {planted}" if planted.startswith("await") else planted

    assert list(find(parsed(source)))


@pytest.mark.parametrize(
    ("rule", "harmless"),
    [
        ("no SQL from values", "query = f'SELECT {_COLUMNS} FROM t LIMIT {MAX_ROWS:.0f}'"),
        ("no SQL from values", "told = f'update of {model} went well'"),
        (
            "every wait has a bound",
            "async def f():\n async with asyncio.timeout(1):\n  await asyncio.open_connection(host, port)",
        ),
        ("every store has a bound", "@lru_cache(maxsize=8)\ndef square(number): ..."),
        ("every store has a bound", "@cache\ndef three(): ..."),
    ],
)
def test_what_keeps_a_rule_is_not_found(rule: str, harmless: str):
    find, _ = RULES[rule]

    assert list(find(parsed(harmless))) == []
