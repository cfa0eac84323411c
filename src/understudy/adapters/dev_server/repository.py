"""The model repository of the development model server: models are loaded from a folder, and unloaded, while it runs.

The API is the model repository extension of the Open Inference Protocol, as Triton and MLServer have it. It is for an
agent on the same machine, so it has a port of its own on the loopback address.
"""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import grpc

from understudy import __version__
from understudy.adapters._proto import methods
from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.adapters.dev_server.catalog import NO_FAULTS, Faults, ModelCatalog, ServedModel, ServeSpec
from understudy.adapters.dev_server.oip import SERVER_NAME
from understudy.adapters.dev_server.status import unary_handler
from understudy.core.loading.served_name import SERVED_VERSION
from understudy.errors import UnknownVersion

_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")
_READY: Final = "READY"


class ModelRepository:
    """Loads ``<folder>/<name>/1/<one file>.onnx`` into a catalog as version 1 of ``name``.

    ``faults`` has what models of these names inject from then on, each time that they are loaded.
    """

    def __init__(
        self, catalog: ModelCatalog, folder: Path, faults: Mapping[str, Faults] = MappingProxyType({})
    ) -> None:
        self._catalog = catalog
        self._folder = folder
        self._faults = faults
        self._loaded: set[str] = set()

    @property
    def loaded(self) -> list[str]:
        """Return the names of the models that were loaded from here."""
        return sorted(self._loaded)

    async def load(self, name: str) -> None:
        """Load a model, or load it again.

        Raises:
            UnknownVersion: There is no such model, or it cannot be loaded; what was loaded before stays.
        """
        file = await asyncio.to_thread(self._file_of, name)
        spec = ServeSpec(name, int(SERVED_VERSION), self._faults.get(name, NO_FAULTS), file=file)
        self._catalog.add(await asyncio.to_thread(ServedModel, spec))
        self._loaded.add(name)

    async def unload(self, name: str) -> None:
        """Drop a model that was loaded from here; calls under way end as they would."""
        if name in self._loaded:
            self._loaded.discard(name)
            self._catalog.remove(name, int(SERVED_VERSION))

    def _file_of(self, name: str) -> Path:
        if not _SAFE_NAME.fullmatch(name):
            raise UnknownVersion(f"{name!r} is no name of a model")
        folder = self._folder / name / SERVED_VERSION
        files = sorted(folder.glob("*.onnx"))
        if len(files) != 1:
            raise UnknownVersion(f"{name} has {len(files)} files *.onnx in its folder {SERVED_VERSION}, not one")
        return files[0]


def repository_handlers(repository: ModelRepository) -> grpc.GenericRpcHandler:
    """Return the handlers of the model repository extension, and of the server's metadata."""
    servicer = _Servicer(repository)
    return grpc.method_handlers_generic_handler(
        methods.OIP_SERVICE,
        {
            methods.OIP_SERVER_METADATA: unary_handler(
                servicer.server, pb.ServerMetadataRequest, pb.ServerMetadataResponse
            ),
            methods.OIP_REPOSITORY_INDEX: unary_handler(
                servicer.index, pb.RepositoryIndexRequest, pb.RepositoryIndexResponse
            ),
            methods.OIP_REPOSITORY_LOAD: unary_handler(
                servicer.load, pb.RepositoryModelLoadRequest, pb.RepositoryModelLoadResponse
            ),
            methods.OIP_REPOSITORY_UNLOAD: unary_handler(
                servicer.unload, pb.RepositoryModelUnloadRequest, pb.RepositoryModelUnloadResponse
            ),
        },
    )


class _Servicer:
    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository

    async def server(self, _: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name=SERVER_NAME, version=__version__, extensions=["model_repository"])

    async def index(self, _: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        response = pb.RepositoryIndexResponse()
        for name in self._repository.loaded:
            response.models.add(name=name, version=SERVED_VERSION, state=_READY)
        return response

    async def load(self, request: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        await self._repository.load(request.model_name)
        return pb.RepositoryModelLoadResponse()

    async def unload(self, request: pb.RepositoryModelUnloadRequest) -> pb.RepositoryModelUnloadResponse:
        await self._repository.unload(request.model_name)
        return pb.RepositoryModelUnloadResponse()
