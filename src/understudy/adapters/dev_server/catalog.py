"""The versions that the development model server has loaded, and the faults that they inject."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.dev_server.onnx import OnnxModel
from understudy.errors import UnknownModel, UnknownVersion

INLINE_ROWS: Final = 512
INLINE_MODEL_BYTES: Final = 1_048_576
"""Up to these, a call runs on the event loop: the example models take 8 µs for one row and at most 0.3 ms for 512, a
hand-over to a thread costs about 0.1 ms and a turn of the queue. Anything larger runs in a thread."""

Tensors = Mapping[str, NDArray[Any]]


class InjectedError(Exception):
    """An injected failure: UNAVAILABLE or INTERNAL."""

    def __init__(self, *, unavailable: bool) -> None:
        super().__init__("injected error")
        self.unavailable = unavailable


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults that a served version injects. Percentages are of the predict calls, drawn independently."""

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    """Added to or taken from the latency, uniformly."""
    error_percent: float = 0.0
    unavailable: bool = False
    """Injected errors are UNAVAILABLE instead of INTERNAL."""
    nan_percent: float = 0.0
    hang: bool = False
    """Never answer: the call ends at its deadline, when its caller gives up, or when the server stops."""
    wrong_shape: bool = False
    """Leave out the last value of each row."""
    after_calls: int = 0
    """So many calls are answered well first, such as those of a validation."""


NO_FAULTS: Final = Faults()


@dataclass(frozen=True, slots=True)
class ServeSpec:
    """A version to serve: an example model's, or the ONNX file at ``file`` under this name."""

    model_name: str
    version: int
    faults: Faults = NO_FAULTS
    typed_values: bool = False
    """TF Serving answers in ``float_val`` and its like instead of ``tensor_content``."""
    file: Path | None = None


class ServedModel:
    """A loaded version with its faults. The draws are seeded with its name, so that a run can be repeated."""

    def __init__(self, spec: ServeSpec) -> None:
        """Load the version.

        Raises:
            UnknownVersion: If there is no such example, or the file cannot be read or loaded.
        """
        content = _content_of(spec)
        self.model_name = spec.model_name
        self.version = spec.version
        self.typed_values = spec.typed_values
        self.onnx = OnnxModel(content, f"{spec.model_name}:{spec.version}")
        self._faults = spec.faults
        self._small = len(content) <= INLINE_MODEL_BYTES
        self._random = Random(f"{spec.model_name}:{spec.version}")
        self._calls = 0
        """Counted as far as ``after_calls``."""

    async def answer(self, inputs: Tensors) -> dict[str, NDArray[Any]]:
        """Return every output, after the injected latency and with the injected faults.

        Raises:
            InputInvalid: If the inputs are not the model's.
            InjectedError: For ``error_percent`` of the calls.
        """
        faults = self._faults_now()
        if faults.hang:
            await asyncio.Event().wait()
        if faults.latency_ms or faults.jitter_ms:
            await asyncio.sleep(self._latency_seconds())
        if self._happens(faults.error_percent):
            raise InjectedError(unavailable=faults.unavailable)
        outputs = await self._run(inputs)
        if self._happens(faults.nan_percent):
            outputs = {name: _without_numbers(values) for name, values in outputs.items()}
        if faults.wrong_shape:
            outputs = {name: values[..., :-1] for name, values in outputs.items()}
        return outputs

    def _faults_now(self) -> Faults:
        if self._calls >= self._faults.after_calls:
            return self._faults
        self._calls += 1
        return NO_FAULTS

    async def _run(self, inputs: Tensors) -> dict[str, NDArray[Any]]:
        rows = max((len(tensor) for tensor in inputs.values() if tensor.ndim), default=0)
        if self._small and rows <= INLINE_ROWS:
            return self.onnx.run(inputs)
        return await asyncio.to_thread(self.onnx.run, inputs)

    def _latency_seconds(self) -> float:
        jitter_ms = self._random.uniform(-1, 1) * self._faults.jitter_ms
        return max(0.0, self._faults.latency_ms + jitter_ms) / 1_000

    def _happens(self, percent: float) -> bool:
        return percent > 0 and self._random.random() * 100 < percent


class ModelCatalog:
    """Every served version by model name and number."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        """Hold ``models``; of two with one name and version the later stays."""
        self._models: dict[str, dict[int, ServedModel]] = {}
        for model in models:
            self.add(model)

    def add(self, model: ServedModel) -> None:
        """Serve one more version, or another one in the place of one with its name and number."""
        self._models.setdefault(model.model_name, {})[model.version] = model

    def remove(self, model_name: str, version: int) -> None:
        """Serve a version no more; one that is not served is no error."""
        self._models.get(model_name, {}).pop(version, None)

    def find(self, model_name: str, version: int | None) -> ServedModel:
        """Return a version; ``None`` means the highest.

        Raises:
            UnknownModel: If no version of the model is served.
            UnknownVersion: If others are.
        """
        versions = self._versions(model_name)
        served = versions.get(max(versions) if version is None else version)
        if served is None:
            raise UnknownVersion(f"model {model_name!r} version {version} is not served")
        return served

    def versions(self, model_name: str) -> tuple[int, ...]:
        """Return the served versions of a model, the newest first.

        Raises:
            UnknownModel: If there is none.
        """
        return tuple(sorted(self._versions(model_name), reverse=True))

    def _versions(self, model_name: str) -> Mapping[int, ServedModel]:
        versions = self._models.get(model_name)
        if not versions:
            raise UnknownModel(f"model {model_name!r} is not served")
        return versions


def load_catalog(specs: Iterable[ServeSpec]) -> ModelCatalog:
    """Load every version.

    Raises:
        UnknownVersion: At the first that is no example, or whose file cannot be read or loaded.
    """
    return ModelCatalog([ServedModel(spec) for spec in specs])


def _content_of(spec: ServeSpec) -> bytes:
    if spec.file is None:
        return example_version(spec.model_name, spec.version).read()
    try:
        return spec.file.read_bytes()
    except OSError as error:
        raise UnknownVersion(f"{spec.file} cannot be read: {error.strerror}", hint="Name an ONNX file.") from None


def _without_numbers(values: NDArray[Any]) -> NDArray[Any]:
    return np.full_like(values, np.nan) if np.issubdtype(values.dtype, np.floating) else values
