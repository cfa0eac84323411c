"""Options of ``version register``, by the headings that its help has for them."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.registry.version_description import MAX_NAME_CHARACTERS, is_name

_SOURCE = "What describes it: one of these"
_WHERE = "Where it lies, and what serves it"
_SAYS = "What a model does not say of itself"


def _name(text: str | None) -> str | None:
    if text is not None and not is_name(text):
        raise typer.BadParameter(f"expected 1 to {MAX_NAME_CHARACTERS} characters, got {len(text)}")
    return text


BaseModelName = Annotated[
    str | None,
    typer.Option(
        "--base-model", metavar="NAME", callback=_name, rich_help_panel=_WHERE, help="Trained from: llama-70b-v1."
    ),
]
FamilyName = Annotated[
    str | None,
    typer.Option(
        "--family",
        metavar="NAME",
        callback=_name,
        rich_help_panel=_WHERE,
        help="Of the base model; else its name up to a hyphen.",
    ),
]

SourceFile = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", rich_help_panel=_SOURCE, help="A JSON file of yours; - reads stdin."),
]
FromServer = Annotated[
    bool, typer.Option("--from-server", rich_help_panel=_SOURCE, help="The model server at the first --endpoint.")
]
FromOnnx = Annotated[
    Path | None, typer.Option("--from-onnx", metavar="FILE", rich_help_panel=_SOURCE, help="An ONNX file.")
]
FromMlflow = Annotated[
    Path | None,
    typer.Option("--from-mlflow", metavar="FOLDER", rich_help_panel=_SOURCE, help="An MLflow model, by its signature."),
]
Endpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        metavar="HOST:PORT",
        rich_help_panel=_WHERE,
        help="A model server; repeat for replicas, or have each address of its name be one by --backend discover=true. "
        "Where it serves several versions, --backend version=… says which.",
    ),
]
Artifact = Annotated[
    str | None,
    typer.Option("--artifact", metavar="URI", rich_help_panel=_WHERE, help="Its file or folder, as artifact_path."),
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", rich_help_panel=_WHERE, help="Agents load it onto these servers."),
]
RequiresValidation = Annotated[
    bool,
    typer.Option(
        "--require-validation", rich_help_panel=_WHERE, help="With --group: no role without a validation that holds."
    ),
]
ReplicasOption = Annotated[
    str | None,
    typer.Option(
        "--replicas",
        metavar="N",
        rich_help_panel=_WHERE,
        help="With --group: on so many of them, or 1..4 by its calls.",
    ),
]
Pin = Annotated[
    bool,
    typer.Option("--pin/--no-pin", rich_help_panel=_WHERE, help="With --group: read a store's artifact, and pin it."),
]
_PROTOCOLS = "oip (default), tfserving, torchserve; over HTTP oip-http, tfserving-http, mlflow, json."
Protocol = Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=_WHERE, help=_PROTOCOLS)]
Framework = Annotated[
    str | None, typer.Option(metavar="NAME", rich_help_panel=_WHERE, help="What made it: sklearn, onnx, mlflow.")
]
Asked = Annotated[bool, typer.Option("--ask/--no-ask", help="Compare the schemas with the model servers.")]
Stores = Annotated[bool, typer.Option("--yes", help="Register proposed schemas unasked.")]
Replaces = Annotated[bool, typer.Option("--replace", help="Correct a version that never served.")]
Like = Annotated[
    str | None,
    typer.Option("--like", metavar="VERSION", rich_help_panel=_SAYS, help="Take the schemas of that version instead."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="[INPUT=]NAME,…",
        rich_help_panel=_SAYS,
        help="Name an input's elements: each is a feature.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=SIZE,…", rich_help_panel=_SAYS, help="One row's shape, where the model leaves it open."
    ),
]
FeatureBounds = Annotated[
    list[str] | None,
    typer.Option(
        "--bounds", metavar="FEATURE=LOW:HIGH", rich_help_panel=_SAYS, help="A feature's least and greatest value."
    ),
]
Stored = Annotated[
    list[str] | None,
    typer.Option(
        "--stored", metavar="FEATURE", rich_help_panel=_SAYS, help="The feature comes from the feature store."
    ),
]
Output = Annotated[
    str | None,
    typer.Option("--output", metavar="NAME", rich_help_panel=_SAYS, help="The output that has the answer."),
]
Score = Annotated[
    int | None,
    typer.Option(
        "--score", metavar="INDEX", min=0, rich_help_panel=_SAYS, help="The answer's element that is the score."
    ),
]
Activation = Annotated[
    str | None,
    typer.Option("--activation", metavar="NAME", rich_help_panel=_SAYS, help="Of logits: sigmoid or softmax."),
]
AnswerBounds = Annotated[
    str | None,
    typer.Option(
        "--answer-bounds", metavar="LOW:HIGH", rich_help_panel=_SAYS, help="The answer's least and greatest value."
    ),
]
Labels = Annotated[
    str | None,
    typer.Option("--labels", metavar="NAME,…", rich_help_panel=_SAYS, help="What the answer's elements are called."),
]
BackendSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--backend", metavar="KEY=VALUE", rich_help_panel=_WHERE, help="A backend setting, such as model_name=churn."
    ),
]
