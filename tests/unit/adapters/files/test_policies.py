"""Policies in files: what is read, and nonsense, each refused with the line and column of what is wrong."""

import os
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from understudy.adapters.files.policies import ReadFiles, read_policy_files
from understudy.adapters.files.refusal import FileRefused

WHOLE = """\
# The share is raised by hand.
model: fraud
champion: 1.10
challenger: "8"
challenger_weight: 10
arms: {9: 5, canary-b: 1}
shadow: null
shadow_percent: 100
fallback: true
salt: spring
category_roles:
  vip: champion
  no: challenger
category_holdout_percent: 10
input_sample_percent: 5
guard: off
on_drift: rollback
"""
NONSENSE = [
    ("", "1:1", "it is empty"),
    ("# nothing\n---\n", "1:1", "it is empty"),
    ("fraud\n", "1:1", "expected one model's policy"),
    ("- model: fraud\n", "1:1", "not a list"),
    ("model: [fraud\n", "2:1", "no YAML"),
    ("model: fraud\nchampion: @7\n", "2:11", "no YAML"),
    ("model: fraud\n\tguard: off\n", "2:1", "no YAML"),
    ("champion: 7\n", "1:1", "model: NAME is missing"),
    ("model: fraud\n", "1:1", "names no field"),
    ("model:\nchampion: 7\n", "1:7", "expected a text, not nothing"),
    ('model: ""\nguard: off\n', "1:8", "1 to 255 characters"),
    ("model: fraud\nchampoin: 7\n", "2:1", "did you mean champion?"),
    ("model: fraud\nweight: 5\n", "2:1", "is challenger_weight"),
    ("model: fraud\nplan: steady\n", "2:1", "belongs to a rollout"),
    ("model: fraud\ncache_ttl_seconds: 60\n", "2:1", "belongs to a version"),
    ("model: fraud\nxyzzy: 5\n", "2:1", "there are model, champion, "),
    ("model: fraud\nguard: off\n\nguard: alert\n", "4:1", "twice: first on line 2"),
    ("model: fraud\nchampion: null\n", "2:11", "expected a text, not nothing"),
    ("model: fraud\nchampion: [7]\n", "2:11", "expected a text, not a list"),
    ("model: fraud\nchampion: true\n", "2:11", "quote it"),
    ("model: fraud\nshadow: none\n", "2:9", "null for none"),
    ("model: fraud\nchallenger_weight: 101\n", "2:20", "from 0 to 100, not '101'"),
    ("model: fraud\nchallenger_weight: -1\n", "2:20", "from 0 to 100, not '-1'"),
    ("model: fraud\nchallenger_weight: 2.5\n", "2:20", "whole percent"),
    ("model: fraud\nchallenger_weight: 010\n", "2:20", "whole percent"),
    ('model: fraud\nchallenger_weight: "10"\n', "2:20", "take the quotes away"),
    ("model: fraud\nchallenger_weight: 10%\n", "2:20", "whole percent"),
    ("model: fraud\ncategory_holdout_percent: 51\n", "2:27", "from 0 to 50"),
    ("model: fraud\nfallback: yes\n", "2:11", "expected true or false, not 'yes'"),
    ("model: fraud\nguard: false\n", "2:8", "did you mean off?"),
    ("model: fraud\nchallenger:\n", "2:12", "say null to take it away"),
    ("model: fraud\nguard: rolback\n", "2:8", "did you mean rollback?"),
    ("model: fraud\non_drift: off\n", "2:11", "expected alert or rollback"),
    ("model: fraud\narms: [9]\n", "2:7", "not a list"),
    ("model: fraud\narms:\n  9: 5\n  10: 0\n", "4:7", "from 1 to 100"),
    ("model: fraud\narms:\n  9: 5\n  9: 6\n", "4:3", "twice: first on line 3"),
    ("model: fraud\ncategory_roles:\n  vip: shadow\n", "3:8", "champion or challenger"),
    ('model: fraud\nsalt: "a\\tb"\n', "2:7", "control character"),
    ("model: fraud\nchampion: 7\nchallenger: 7\n", "3:13", "is champion already"),
    ("model: fraud\nchallenger: null\nchallenger_weight: 5\n", "3:20", "needs a challenger"),
    ("model: fraud\nchallenger_weight: 60\narms: {9: 41}\n", "3:7", "have 101 % together"),
    ("model: fraud\n<<: {guard: off}\n", "2:1", "merge keys"),
    ("model: fraud\nchampion: &c 7\n", "2:11", "anchors"),
    ("model: fraud\nguard: off\n---\nmodel: fraud\nguard: off\n", "4:8", "is there twice: first in "),
]


def read(folder: Path, text: str, name: str = "fraud.yaml") -> ReadFiles:
    (folder / name).write_text(text, encoding="utf-8")
    return read_policy_files([folder / name])


@pytest.mark.parametrize(("text", "place", "words"), NONSENSE)
def test_nonsense_is_refused_with_its_line_and_column(tmp_path, text, place, words):
    (problem,) = read(tmp_path, text).problems

    assert str(problem).startswith(f"{(tmp_path / 'fraud.yaml').as_posix()}:{place}: ")
    assert words in problem.detail


def test_a_file_is_read_as_fields_and_a_version_as_it_was_written(tmp_path):
    found = read(tmp_path, WHOLE)

    (file,) = found.files
    assert not found.problems
    assert file.model_name == "fraud"
    assert file.fields == {
        "champion": "1.10",
        "challenger": "8",
        "challenger_weight": 10,
        "arms": {"9": 5, "canary-b": 1},
        "shadow": None,
        "shadow_percent": 100,
        "fallback": True,
        "salt": "spring",
        "category_roles": {"vip": "champion", "no": "challenger"},
        "category_holdout_percent": 10,
        "input_sample_percent": 5,
        "guard": "off",
        "on_drift": "rollback",
    }


def test_all_that_is_wrong_with_a_file_is_named_by_its_lines(tmp_path):
    found = read(tmp_path, "model: fraud\nguard: never\nchampoin: 7\nshadow_percent: x\n")

    assert [problem.line for problem in found.problems] == [2, 3, 4]
    assert not found.files


def test_a_folder_is_read_with_what_is_below_it_but_nothing_hidden(tmp_path, monkeypatch):
    (tmp_path / "policy" / "team").mkdir(parents=True)
    (tmp_path / "policy" / ".git").mkdir()
    texts = {
        "policy/b.yml": "model: b\nguard: off\n",
        "policy/team/a.json": '{"model": "a", "guard": "off"}',
        "policy/.git/c.yaml": "?",
        "policy/team/d.YAML": "model: d\nguard: off\n",
        "policy/README.md": "?",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    found = read_policy_files([Path("policy"), Path("policy/team/../b.yml"), tmp_path / "policy" / "b.yml"])

    assert not found.problems
    assert sorted((file.path, file.model_name) for file in found.files) == [
        ("policy/b.yml", "b"),
        ("policy/team/a.json", "a"),
        ("policy/team/d.YAML", "d"),
    ]


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"model: fraud\nguard: off\n---\nmodel: churn\n")))

    found = read_policy_files([Path("-")])

    assert [file.path for file in found.files] == ["stdin"]
    assert [str(problem).partition(" ")[0] for problem in found.problems] == ["stdin:4:1:"]


def test_a_folder_that_cannot_be_read_is_refused_and_not_passed_over(tmp_path, monkeypatch):
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)

    with pytest.raises(FileRefused, match="cannot be read: Permission denied"):
        read_policy_files([tmp_path])


def test_a_path_that_is_no_file_and_a_folder_without_files_are_refused(tmp_path):
    with pytest.raises(FileRefused, match="no file and no folder"):
        read_policy_files([tmp_path / "none"])
    with pytest.raises(FileRefused, match=r"\*\.yaml"):
        read_policy_files([tmp_path])
