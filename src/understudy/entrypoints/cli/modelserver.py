"""``understudy modelserver``: the development model server."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.modelserver import (
    CONTROL_HELP,
    DEFAULT_HOST,
    DEFAULT_PORT,
    FAULT_HELP,
    REPOSITORY_HELP,
    SERVE_HELP,
    ModelServerOptions,
    parse_fault,
    parse_serve_spec,
    run,
)

app = typer.Typer(add_completion=False)


@app.command()
def modelserver(
    *,
    serve: Annotated[list[str] | None, typer.Option("--serve", metavar="SPEC", help=SERVE_HELP)] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = DEFAULT_HOST,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")] = DEFAULT_PORT,
    repository: Annotated[Path | None, typer.Option(metavar="FOLDER", help=REPOSITORY_HELP)] = None,
    control_port: Annotated[int, typer.Option(min=0, max=65_535, help=CONTROL_HELP)] = 0,
    fault: Annotated[list[str] | None, typer.Option("--fault", metavar="FAULT", help=FAULT_HELP)] = None,
) -> None:
    """Serve real ONNX models over gRPC: TF Serving and the Open Inference Protocol.

    Prints {"port": …} when it is ready and runs until SIGTERM. For development: it has no authentication.
    """
    try:
        specs = tuple(map(parse_serve_spec, serve or ()))
        faults = dict(map(parse_fault, fault or ()))
        options = ModelServerOptions(specs, host, port, repository, control_port, faults)
    except ValueError as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), "For example: --serve visits:1") from None
    run(options)
