"""The recipes of CONTRIBUTING.md, followed on a copy of the source: each touches no more files than it says."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/understudy"


class Recipe(NamedTuple):
    """New files, insertions before a line of others, and a program that shows the addition at work."""

    new: Mapping[str, str]
    before: Mapping[str, Mapping[str, str]]
    program: str
    expected: str


CHECK = Recipe(
    new={
        "core/canary/scores/score_fall.py": '''"""A throw-away check: scores again, by another name."""

from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.decision import Check, Evidence, Unit
from understudy.core.canary.scores.score_shift import judge_score_shift

SCORE_FALL = Check("score_fall", "fallen score", Unit.NUMBER)


def judge_score_fall(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return what the check of scores returns."""
    return judge_score_shift(inputs, log_needed)._replace(check=SCORE_FALL)
'''
    },
    before={
        "core/canary/checks.py": {
            "from understudy.core.canary.scores.score_shift": "from understudy.core.canary.scores.score_fall "
            "import SCORE_FALL, judge_score_fall\n",
            "    CheckSpec(OUTCOME,": "    CheckSpec(SCORE_FALL, judge_score_fall, lambda policy: 0.25),\n",
        }
    },
    program="""
from stats.worlds import Traffic, World
from understudy.core.canary.analysis import evaluate
from understudy.core.canary.checks import evidence_from_json
from understudy.core.canary.limits import CanaryPolicy, Stage
stage = Stage("fraud", "42", 1, (0.0,), 5, 25.0, {1: 25.0})
windows = Traffic(World("small", requests_per_minute=2_000, error_rate=0.02), 1).windows(0, 8, 25.0)
decision = evaluate(windows, CanaryPolicy(), stage, 300.0)
rows = [evidence_from_json(row.to_json()) for row in decision.evidence]
print(*(row.check.name for row in rows))
""",
    expected="score_fall",
)
BACKEND = Recipe(
    new={
        "adapters/model_servers/floats.py": '''"""A throw-away kind of model server: floats in, floats out."""

from understudy.adapters.model_servers.server_backend import ServerBackend, ServerApi
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.codec import tensor_of_content
from understudy.core.schema.tensors import Block, Datatype, Tensor


class FloatsBackend(ServerBackend):
    """A version behind a server of floats."""

    def _api(self, version: ModelVersion) -> ServerApi:
        return ServerApi("/floats.Floats/Infer", Probe("/floats.Floats/Ready", b"", bool))

    def _encode(self, block: Block) -> bytes:
        return b"".join(block.contents)

    def _decode(self, answer: bytes) -> Tensor:
        return tensor_of_content(Datatype.FP32, (len(answer) // 4,), answer)
'''
    },
    before={
        "adapters/model_servers/connect.py": {
            "from understudy.adapters.model_servers.server_backend": "from understudy.adapters.model_servers.floats "
            "import FloatsBackend\n",
            '    "tfserving": ': '    "floats": FloatsBackend,\n',
        }
    },
    program="""
import asyncio
from builders import a_version_row, policy_rows
from understudy.adapters.model_servers.connect import PROTOCOLS, connect
from understudy.core.routing.policy import PolicySnapshot
from understudy.core.routing.policy_document import Compiling
document = {"models": {"visits": policy_rows(versions=[a_version_row("1", protocol="floats")])}}
compiling = Compiling(PolicySnapshot(), document, complete=True, protocols=PROTOCOLS)
list(compiling.each_model())
async def main():
    backend = connect(compiling.snapshot().policies["visits"].champion)
    print(type(backend).__name__)
    await backend.close()
asyncio.run(main())
""",
    expected="FloatsBackend",
)
COMMAND = Recipe(
    new={},
    before={
        "entrypoints/cli/audit.py": {
            '@app.command("list")': '@app.command()\ndef count() -> None:\n    """Count the changes."""\n\n\n'
        }
    },
    program="from understudy.entrypoints.cli.main import run; run(['audit', 'count', '--help'])",
    expected="Count the changes.",
)


def followed(recipe: Recipe, folder: Path) -> None:
    """Copy the source and do what the recipe says."""
    shutil.copytree(ROOT / PACKAGE, folder / "understudy", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in recipe.new.items():
        (folder / "understudy" / name).write_text(text, encoding="utf-8")
    for name, insertions in recipe.before.items():
        path = folder / "understudy" / name
        text = path.read_text(encoding="utf-8")
        for mark, inserted in insertions.items():
            assert text.count(f"\n{mark}") == 1, f"{name} has not one line that begins with {mark}"
            text = text.replace(f"\n{mark}", f"\n{inserted}{mark}")
        path.write_text(text, encoding="utf-8")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("recipe", "most_files"), [(CHECK, 2), (BACKEND, 2), (COMMAND, 1)], ids=["check", "backend", "command"]
)
def test_a_recipe_works_and_touches_few_files(recipe, most_files, tmp_path):
    followed(recipe, tmp_path)

    paths = os.pathsep.join(str(path) for path in (tmp_path, ROOT / "tests", ROOT))
    done = subprocess.run(
        [sys.executable, "-c", recipe.program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert recipe.expected in done.stdout
    assert len(recipe.new) + len(recipe.before) <= most_files


def test_each_recipe_is_in_the_guide():
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    for title in ("a canary check", "a model-server backend", "a command", "a setting", "a migration"):
        assert f"## Add {title}\n" in guide
