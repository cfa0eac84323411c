"""Tutorials, how-tos and README are what they say: each command is executed, and each output looked for."""

import re
from pathlib import Path

import pytest
from docs.pages import Browse, Stop, Type, steps_of
from docs.reader import Reader

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
NOT_FOLLOWED = {
    "back-up-and-restore.md": "needs a Postgres to lose; tests/system/test_restored_backup.py runs its blocks",
    "deploy-kubernetes.md": "needs a cluster",
    "accept-tokens.md": "needs an issuer; tests/integration/entrypoints/test_oidc.py has one",
    "drive-from-ci.md": "needs a pipeline and its proxy; tests/system/test_ci_with_a_key.py goes the same way",
    "follow-a-registry.md": "needs an MLflow server; tests/system/test_version_sources.py does what it says",
    "keep-the-log-in-a-lake.md": "needs a bucket; tests/integration/prediction_log/test_lake.py does what it says",
    "run-with-compose.md": "needs a container engine",
    "ask-a-judge.md": "needs a chat endpoint; tests/integration/rollout/test_chat_judge.py runs its program",
    "upgrade.md": "needs two releases; tests/migrations and make test-previous try what it says",
    "validate-versions.md": "shows versions that are not there; make test-lifecycle plants what it names",
    "watch.md": "needs Prometheus, Alertmanager and Grafana",
}
"""How-tos whose blocks are not executed here, and why not; other tests look at what they deploy."""
HOW_TOS = [path for path in sorted((DOCS / "how-to").glob("*.md")) if path.name not in NOT_FOLLOWED]
FOLLOWED = [ROOT / "README.md", *TUTORIALS, *HOW_TOS]
NOT_RUN = {"README.md": 2, "use-a-feature-store.md": 1, "connect-a-model-server.md": 1}
"""How many blocks of a page are marked as ``not run``; of every other page all are."""


def shown_path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FOLLOWED, ids=shown_path)
def test_no_block_is_left_out_but_those_that_are_counted_here(path: Path):
    typed = [step for step in steps_of(path) if isinstance(step, Type)]
    blocks = re.findall(r"^```sh$", path.read_text(encoding="utf-8"), re.MULTILINE)

    left_out = [step.block.marks["not run"] for step in typed if "not run" in step.block.marks]

    assert len(typed) == len(blocks)
    assert len(left_out) == NOT_RUN.get(path.name, 0)


def test_there_are_the_five_tutorials_and_the_index_names_every_page():
    index = (DOCS / "README.md").read_text(encoding="utf-8")

    assert {path.stem for path in TUTORIALS} == {
        "first-rollback",
        "your-own-scikit-learn-model",
        "shadow-a-new-version",
        "ab-test-to-a-decision",
        "from-a-bucket-to-a-tenth-of-the-calls",
    }
    pages = {
        shown_path(path).removeprefix("docs/")
        for folder in ("tutorials", "how-to", "reference", "explanation")
        for path in (DOCS / folder).glob("*.md")
    }
    assert pages - set(re.findall(r"\]\(([^)#]+)\)", index)) == set()


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_says_first_what_one_will_have_and_how_long_it_takes_and_last_what_to_read(path: Path):
    text = path.read_text(encoding="utf-8")
    opening = text.split("\n\n")[1].replace("\n", " ")

    assert opening.startswith("At the end ")
    assert re.search(r"It takes (\w+ minutes|a quarter of an hour)\.", opening)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[-1] == "What to read next"


@pytest.mark.parametrize("path", [*TUTORIALS, *HOW_TOS], ids=lambda path: path.stem)
def test_what_a_page_lets_go_on_it_also_stops(path: Path):
    steps = steps_of(path)

    begun = {step.terminal for step in steps if isinstance(step, Type) and "goes on" in step.block.marks}

    assert {step.terminal for step in steps if isinstance(step, Stop)} == begun


@pytest.mark.parametrize("path", FOLLOWED, ids=shown_path)
def test_a_page_names_what_is_done_in_the_browser(path: Path):
    told = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8")).replace("\n", " ")

    named = [name for step in steps_of(path) if isinstance(step, Browse) for name in step.action.named]

    assert [name for name in named if name not in told] == []


@pytest.mark.followed
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", FOLLOWED, ids=shown_path)
def test_whoever_does_what_a_page_says_gets_what_it_shows(path: Path, short_path: Path):
    reader = Reader(ROOT, short_path)
    try:
        for step in steps_of(path):
            if not (isinstance(step, Type) and "not run" in step.block.marks):
                reader.follow(step)
    finally:
        left = reader.leave()

    assert left == []
