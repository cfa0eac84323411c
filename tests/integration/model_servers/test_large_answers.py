"""Answers over the limit, as long as they come: what they leave behind in the process that refuses them."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import grpc
import pytest
from contract.servers import HUGE_BYTES, Behaviour, TcpRelay, running, settings_in

from understudy.adapters._proto.methods import OIP_MODEL_INFER, OIP_SERVICE, oip_method
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.replicas.replica_set import ReplicaSet
from understudy.errors import BadAnswer, ServingError

STATM = Path("/proc/self/statm")
GZIP_MAGIC = b"\x1f\x8b"
"""RFC 1952 §2.3.1."""
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 0x4, 0x5
DEFAULTS = {INITIAL_WINDOW_SIZE: 65_535, MAX_FRAME_SIZE: 16_384}
"""RFC 9113 §6.5.2."""
MAX_BYTES = 2 * 2**20
"""Twice of what was there after a hundred answers, on quiet machines and at load 10; without flow control of our own
choice it is 2.6 MB and more where the machine is quiet."""
STRICT_MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
"""glibc gives a block of this size back to the system as soon as it is free.

By itself it keeps 3 to 20 MB of them for the next answers, as threads happen to take turns; no answer adds to that.
"""
CLIENT = """
import asyncio, os, statistics, sys
from pathlib import Path
from understudy.adapters._proto.methods import OIP_MODEL_INFER, OIP_SERVICE, oip_method
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.replicas.replica_set import ReplicaSet
from understudy.errors import BadAnswer

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def refused(replicas, method):
    try:
        await replicas.call(method, b"x", 30)
    except BadAnswer as problem:
        assert "RESOURCE_EXHAUSTED" in problem.detail, problem.detail
        return
    raise AssertionError("it was taken")

async def main(endpoint):
    method = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
    replicas = ReplicaSet([endpoint], Probe(method, b"", bool))
    assert await replicas.call(method, b"short", 30) == b"ok"
    before = resident_bytes()
    sys.stdin.readline()
    left = []
    for _ in range(5):
        for _ in range(5):
            await asyncio.gather(*(refused(replicas, method) for _ in range(4)))
        left.append(resident_bytes() - before)
    print(round(statistics.median(left)))
    await replicas.close()

asyncio.run(main(sys.argv[1]))
"""


async def test_a_model_server_may_send_64_kib_of_an_answer_unless_it_is_asked_for_more():
    """By itself gRPC lets a server send 4 MiB of each answer ahead, and more the faster the link."""
    method = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
    async with running(Behaviour(answer=b"ok")) as (server,), TcpRelay(server.port, keeps=True) as relay:
        replicas = ReplicaSet([relay.endpoint], Probe(method, b"", bool))
        assert await replicas.call(method, b"short", 30) == b"ok"
        server.behaviour.answer = bytes(HUGE_BYTES)
        for _ in range(3):
            with pytest.raises(BadAnswer, match="RESOURCE_EXHAUSTED"):
                await replicas.call(method, b"x", 30)
        await replicas.close()

    assert relay.connections == 1
    asked = [{name: frame[name] for name in DEFAULTS if name in frame} for frame in settings_in(relay.sent)]
    assert all(values.items() <= DEFAULTS.items() for values in asked), asked


@pytest.mark.skipif(not STATM.exists(), reason="the memory of a process is read from /proc")
async def test_answers_over_the_limit_leave_no_memory_behind():
    async with running(Behaviour(answer=b"ok")) as (server,):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, server.endpoint, stdin=PIPE, stdout=PIPE, env={**os.environ, **STRICT_MALLOC}
        )
        while not server.completed:
            assert child.returncode is None
            await asyncio.sleep(0.01)
        server.behaviour.answer = bytes(HUGE_BYTES)
        out, _ = await asyncio.wait_for(child.communicate(b"go on\n"), 60)

    assert child.returncode == 0
    assert int(out) <= MAX_BYTES


async def test_a_compressed_answer_is_not_decompressed():
    """Half a megabyte can become half a gigabyte before gRPC looks at its size again.

    It is refused, or comes as it is on the wire, where its first bytes are no answer of any protocol.
    """
    compressed = (("grpc.default_compression_algorithm", grpc.Compression.Gzip),)
    method = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
    async with running(Behaviour(answer=bytes(HUGE_BYTES)), options=compressed) as (server,):
        replicas = ReplicaSet([server.endpoint], Probe(method, b"", bool))

        try:
            answer = await replicas.call(method, b"x", 30)
        except ServingError as problem:
            assert "UNIMPLEMENTED" in problem.detail
        else:
            assert answer[:2] == GZIP_MAGIC

        await replicas.close()
