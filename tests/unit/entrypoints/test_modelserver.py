from pathlib import Path

import pytest

from understudy.adapters.dev_server.catalog import Faults, ServeSpec
from understudy.entrypoints.modelserver import ModelServerOptions, parse_fault, parse_options, parse_serve_spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("visits:1", ServeSpec("visits", 1)),
        (
            "visits:3,latency_ms=40,error_percent=10",
            ServeSpec("visits", 3, Faults(latency_ms=40.0, error_percent=10.0)),
        ),
        ("visits:3,jitter_ms=2.5,nan_percent=100", ServeSpec("visits", 3, Faults(jitter_ms=2.5, nan_percent=100.0))),
        ("visits:3,error_code=unavailable", ServeSpec("visits", 3, Faults(unavailable=True))),
        ("visits:3,error_code=internal", ServeSpec("visits", 3)),
        ("visits:4,hang", ServeSpec("visits", 4, Faults(hang=True))),
        ("visits:4,hang=false,wrong_shape=true", ServeSpec("visits", 4, Faults(wrong_shape=True))),
        ("visits:1,typed_values", ServeSpec("visits", 1, typed_values=True)),
        ("own:12,file=a/b.onnx", ServeSpec("own", 12, file=Path("a/b.onnx"))),
    ],
)
def test_a_serve_text_names_a_version_and_its_faults(text, spec):
    assert parse_serve_spec(text) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("visits", "'visits' is not MODEL:VERSION"),
        ("visits:0", "is not MODEL:VERSION"),
        ("visits:one", "is not MODEL:VERSION"),
        (":1", "is not MODEL:VERSION"),
        ("visits:1,latency_ms=fast", "latency_ms=fast must be a number from 0 to 60000"),
        ("visits:1,latency_ms=nan", "latency_ms=nan must be a number"),
        ("visits:1,latency_ms=-1", "latency_ms=-1 must be a number"),
        ("visits:1,error_percent=101", "error_percent=101 must be a number from 0 to 100"),
        ("visits:1,error_code=teapot", "error_code=teapot is not a flag"),
        ("visits:1,hang=maybe", "hang=maybe must be true or false"),
        ("visits:1,latency=5", "latency=5 is not a flag; use MODEL:VERSION"),
        ("visits:1,file=", "file= is not a flag"),
        ("visits:1,", "= is not a flag"),
    ],
)
def test_a_serve_text_that_cannot_be_used_says_which_part_and_what_can(text, message):
    with pytest.raises(ValueError) as refused:
        parse_serve_spec(text)

    assert message in str(refused.value)


def test_a_fault_names_a_model_and_what_it_injects_after_how_many_calls():
    assert parse_fault("visits--3--0ba1c2d3,after_calls=10,latency_ms=40") == (
        "visits--3--0ba1c2d3",
        Faults(latency_ms=40.0, after_calls=10),
    )


@pytest.mark.parametrize("text", ["", "visits", ",latency_ms=1", "visits,typed_values", "visits,file=a.onnx"])
def test_a_fault_that_cannot_be_used_is_refused_with_what_can(text):
    with pytest.raises(ValueError, match="after_calls"):
        parse_fault(text)


def test_faults_are_of_models_that_are_loaded_while_it_runs(capsys):
    control = ["--repository", "/models", "--control-port", "8501"]
    options = parse_options([*control, "--fault", "a,hang", "--fault", "b,error_percent=8"])
    with pytest.raises(SystemExit):
        parse_options(["--serve", "visits:1", "--fault", "a,hang"])

    assert options.faults == {"a": Faults(hang=True), "b": Faults(error_percent=8.0)}
    assert "--fault is for models that are loaded from --repository" in capsys.readouterr().err


def test_the_command_line_takes_several_versions_and_a_place():
    options = parse_options(["--serve", "visits:1", "--serve", "digits:1", "--port", "0"])

    assert options == ModelServerOptions((ServeSpec("visits", 1), ServeSpec("digits", 1)), "127.0.0.1", 0)


def test_a_command_line_that_cannot_be_used_exits_with_2_and_the_reason(capsys):
    with pytest.raises(SystemExit) as left:
        parse_options(["--serve", "visits"])

    assert left.value.code == 2
    assert "'visits' is not MODEL:VERSION" in capsys.readouterr().err


def test_models_are_loaded_while_it_runs_only_with_a_repository_and_a_control_port():
    options = parse_options(["--repository", "/models", "--control-port", "8501"])

    assert (options.serve, options.repository, options.control_port) == ((), Path("/models"), 8501)


@pytest.mark.parametrize("arguments", [[], ["--repository", "/models"], ["--serve", "visits:1", "--control-port", "1"]])
def test_a_server_with_nothing_to_serve_or_half_a_control_is_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        parse_options(arguments)

    assert "--control-port" in capsys.readouterr().err
