"""Exit codes, and what a failure says."""

import orjson
import pytest

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode, exit_code_for, problem_text, report
from understudy.errors import (
    FileProblem,
    GenerationMoved,
    InputInvalid,
    LoginNotAllowed,
    MigrationNeeded,
    NotRegistered,
    PolicyFileInvalid,
    PolicyRefused,
    RegistryUnavailable,
    SchemaInvalid,
    ScopeMissing,
    Violation,
    leaf_errors,
)


def test_the_exit_codes_are_the_documented_ones():
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0,
        "PROBLEM": 1,
        "USAGE": 2,
        "DEGRADED": 3,
        "NOT_FOUND": 4,
        "CONFLICT": 5,
        "UNDECIDED": 6,
        "NOT_ALLOWED": 7,
        "UNREACHABLE": 69,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize("error", leaf_errors(), ids=lambda error: error.code)
def test_every_error_leaves_with_a_code_that_says_failure(error):
    assert exit_code_for(error) is not ExitCode.DONE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotRegistered, 4),
        (GenerationMoved, 5),
        (ScopeMissing, 7),
        (PolicyRefused, 7),
        (RegistryUnavailable, 69),
        (LoginNotAllowed, 7),
        (SchemaInvalid, 2),
        (MigrationNeeded, 1),
    ],
)
def test_an_error_of_the_registry_has_its_documented_exit_code(error, code):
    assert exit_code_for(error) == code


def test_a_failure_says_its_code_its_cause_and_the_next_step():
    said = problem_text(PolicyRefused("weight is 0 to 100, not 130", hint="UPDATE ServingPolicy SET …")).plain

    assert said == (
        "✖ E203 The database refused the change\n  weight is 0 to 100, not 130\n  → UPDATE ServingPolicy SET …"
    )


def test_a_failure_names_every_violation():
    said = problem_text(InputInvalid("2 problems", (Violation("/inputs/a", "missing"), Violation("/b", "no"))))

    assert "\n  /inputs/a: missing\n  /b: no\n" in said.plain


def test_a_failure_is_json_for_programs_and_leaves_standard_output_alone(capsys):
    code = report(GenerationMoved("it is at 4"), as_json=True)

    out, err = capsys.readouterr()
    assert (code, out) == (5, "")
    assert orjson.loads(err)["error"] == {
        "code": "E409",
        "title": GenerationMoved.title,
        "detail": "it is at 4",
        "next": GenerationMoved.hint,
        "exit_code": 5,
    }


def test_a_refusal_of_the_command_line_itself_says_what_helps(capsys):
    code = report(CommandRefused(ExitCode.USAGE, "this change needs a reason", "Add --reason."), as_json=False)

    assert code == 2
    assert capsys.readouterr().err == "✖ this change needs a reason\n  → Add --reason.\n"


def test_a_terminal_is_told_the_first_problems_of_files_and_a_program_all(capsys):
    problem = PolicyFileInvalid.naming(FileProblem("a.yaml", line, 1, "is wrong") for line in range(1, 31))

    report(problem, as_json=True)

    text = problem_text(problem).plain
    assert (text.count("is wrong"), "and 10 more" in text) == (20, True)
    assert len(orjson.loads(capsys.readouterr().err)["error"]["problems"]) == 30
