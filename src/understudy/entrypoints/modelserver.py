"""The development model server as a process, which ``understudy modelserver`` runs.

``python -m understudy.entrypoints.modelserver --serve visits:1 --serve visits:3,latency_ms=40,error_percent=10`` prints
one line of JSON when it is ready, ``{"port": 40123}``, and runs until SIGTERM or SIGINT.
"""

import argparse
import asyncio
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from understudy.adapters.dev_server.catalog import Faults, ServeSpec, load_catalog
from understudy.adapters.dev_server.repository import ModelRepository
from understudy.adapters.dev_server.server import ControlServer, InferenceServer
from understudy.errors import UnderstudyError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8500
FAULTS_HELP: Final = (
    "latency_ms, jitter_ms, error_percent, error_code=internal|unavailable, nan_percent, hang, wrong_shape, "
    "after_calls (so many are answered well first)"
)
SERVE_HELP: Final = (
    f"MODEL:VERSION[,FLAG=VALUE…]; flags: {FAULTS_HELP}, typed_values, file=PATH of an ONNX file (default: the example "
    "model)"
)
FAULT_HELP: Final = (
    f"NAME,FLAG=VALUE… of a model that is loaded from --repository under this name; flags: {FAULTS_HELP}"
)
REPOSITORY_HELP: Final = "A folder that models are loaded from while the server runs; needs --control-port."
CONTROL_HELP: Final = "The port of 127.0.0.1 where an agent has models loaded and unloaded; 0: none."
_MOST: Final = {
    "latency_ms": 60_000,
    "jitter_ms": 60_000,
    "error_percent": 100,
    "nan_percent": 100,
    "after_calls": 10**9,
}
_SWITCHES: Final = {"": True, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ModelServerOptions:
    """The models to serve and the address to listen on; port 0 takes a free one."""

    serve: tuple[ServeSpec, ...]
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    repository: Path | None = None
    """Where models are loaded from while the server runs."""
    control_port: int = 0
    """Of the loopback address; 0: nothing is loaded while it runs."""
    faults: Mapping[str, Faults] = field(default_factory=dict)
    """Of models that are loaded while it runs, by their names."""

    def __post_init__(self) -> None:
        """Check that there is something to serve.

        Raises:
            ValueError: There is not, or only one of repository and control port is given.
        """
        if (self.repository is None) != (self.control_port == 0):
            raise ValueError("--repository and --control-port belong together: give both, or neither")
        if not self.serve and self.repository is None:
            raise ValueError("there is nothing to serve: give --serve, or --repository and --control-port")
        if self.faults and self.repository is None:
            raise ValueError("--fault is for models that are loaded from --repository: give that, too")


def parse_serve_spec(text: str) -> ServeSpec:
    """Return what a specification such as ``visits:3,latency_ms=40,error_percent=10`` asks for (see ``SERVE_HELP``).

    Raises:
        ValueError: Names the unusable part, and what is permitted.
    """
    place, *flags = text.split(",")
    match = re.fullmatch(r"([^:,=\s]+):([1-9][0-9]{0,17})", place)
    if match is None:
        raise ValueError(f"{place!r} is not MODEL:VERSION, such as visits:1")
    faults: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        if name == "file" and value:
            spec["file"] = Path(value)
        elif name == "typed_values":
            spec["typed_values"] = _switch(name, value)
        else:
            faults.update(_fault(name, value))
    return ServeSpec(match[1], int(match[2]), Faults(**faults), **spec)


def parse_fault(text: str) -> tuple[str, Faults]:
    """Return the name of a model, and what it injects, by a text such as ``visits--3--0ba1c2d3,error_percent=8``.

    Raises:
        ValueError: Names the unusable part, and what is permitted.
    """
    model, *flags = text.split(",")
    if not model or not flags:
        raise ValueError(f"{text!r} is not {FAULT_HELP}")
    faults: dict[str, Any] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        faults.update(_fault(name, value))
    return model, Faults(**faults)


def _fault(name: str, value: str) -> dict[str, Any]:
    if name in _MOST:
        number = _bounded(name, value)
        return {name: int(number) if name == "after_calls" else number}
    if name in ("hang", "wrong_shape"):
        return {name: _switch(name, value)}
    if name == "error_code" and value in ("internal", "unavailable"):
        return {"unavailable": value == "unavailable"}
    raise ValueError(f"{name}={value} is not a flag; use {SERVE_HELP}")


def _bounded(name: str, value: str) -> float:
    limit = _MOST[name]
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= limit:
        raise ValueError(f"{name}={value} must be a number from 0 to {limit:g}")
    return number


def _switch(name: str, value: str) -> bool:
    if value not in _SWITCHES:
        raise ValueError(f"{name}={value} must be true or false")
    return _SWITCHES[value]


async def serve(options: ModelServerOptions, on_ready: Callable[[int], None]) -> None:
    """Serve until SIGTERM or SIGINT, then stop within a second; ``on_ready`` gets the port once the server answers.

    Raises:
        UnknownVersion: A version is no example, or its file cannot be loaded.
        BackendUnavailable: The port is taken.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    catalog = load_catalog(options.serve)
    async with AsyncExitStack() as stack:
        if options.repository is not None:
            repository = ModelRepository(catalog, options.repository, options.faults)
            await stack.enter_async_context(ControlServer(repository, options.control_port))
        server = await stack.enter_async_context(InferenceServer(catalog, options.host, options.port))
        on_ready(server.port)
        # The one wait without a deadline: a server runs until a signal stops it.
        await stop.wait()


def run(options: ModelServerOptions, on_ready: Callable[[int], None] | None = None) -> None:
    """Run :func:`serve` in a new event loop; without ``on_ready`` it prints ``{"port": …}``."""
    asyncio.run(serve(options, on_ready or print_port))


def print_port(port: int) -> None:
    """Write the server's port to standard output, as one line of JSON."""
    sys.stdout.write(orjson.dumps({"port": port}).decode() + "\n")
    sys.stdout.flush()


def parse_options(arguments: Sequence[str] | None = None) -> ModelServerOptions:
    """Return the command line's options; unusable ones are reported on standard error, with exit code 2."""
    parser = argparse.ArgumentParser("understudy modelserver", description="Serve real ONNX models over gRPC.")
    parser.add_argument("--serve", action="append", default=[], metavar="SPEC", help=SERVE_HELP)
    parser.add_argument("--host", default=DEFAULT_HOST)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--repository", type=Path, metavar="FOLDER", help=REPOSITORY_HELP)
    parser.add_argument("--control-port", type=int, default=0, help=CONTROL_HELP)
    parser.add_argument("--fault", action="append", default=[], metavar="FAULT", help=FAULT_HELP)
    parsed = parser.parse_args(arguments)
    try:
        specs = tuple(parse_serve_spec(text) for text in parsed.serve)
        faults = dict(parse_fault(text) for text in parsed.fault)
        return ModelServerOptions(specs, parsed.host, parsed.port, parsed.repository, parsed.control_port, faults)
    except ValueError as error:
        parser.error(str(error))


def main() -> None:
    """Run the server that the command line asks for."""
    try:
        run(parse_options())
    except UnderstudyError as error:
        sys.exit(f"{error.code} {error.detail}\n{error.next_step}")


if __name__ == "__main__":
    main()
