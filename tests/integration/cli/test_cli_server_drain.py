"""``server drain --self``: the command asks the agent beside it by the agent's own port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from command import CommandLine, Done

from understudy.entrypoints.metrics_port import metrics_port
from understudy.loading.server_lifetime import ServerLifetime


class AgentPort:
    """The port of an agent whose server has nothing that proxies call, or something that they go on to call."""

    def __init__(self, *, is_called: bool, is_near: bool = True, drain_seconds: float = 30.0) -> None:
        self.lifetime = ServerLifetime(asyncio.get_running_loop().time, lambda: None)
        self._is_called = is_called
        self._is_near = is_near
        self._drain_seconds = drain_seconds

    async def drain(self) -> bool:
        self.lifetime.drain()
        self.lifetime.note([], is_validating=self._is_called)
        return True

    async def drained(self) -> bool:
        return await self.lifetime.drained(self._drain_seconds)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        questions = {"POST /drain": self.drain, "GET /drained": self.drained}
        page, is_near = (b"", "text/plain"), self._is_near
        async with metrics_port("127.0.0.1", 0, lambda: page, questions=questions, is_near=lambda *_: is_near) as port:
            yield str(port)


async def drain(port: str, *options: str) -> Done:
    understudy = CommandLine(None)
    return await understudy.beside("server", "drain", *options, UNDERSTUDY_AGENT_METRICS_PORT=port)


async def test_a_server_is_drained_by_the_agent_beside_the_command():
    agent = AgentPort(is_called=False)
    async with agent.open() as port:
        done = await drain(port, "--self")

    assert done.code == 0
    assert f"No proxy calls the server of the agent at 127.0.0.1:{port} any more: stop the two." in done.said
    assert agent.lifetime.is_draining


async def test_a_server_that_proxies_go_on_to_call_is_a_problem_and_keeps_draining():
    agent = AgentPort(is_called=True, drain_seconds=0.05)
    async with agent.open() as port:
        done = await drain(port, "--self")

    assert done.code == 1
    assert "proxies may still call the server" in done.said
    assert agent.lifetime.is_draining


async def test_without_an_agent_at_the_port_the_settings_are_named():
    async with AgentPort(is_called=False).open() as port:
        pass

    done = await drain(port, "--self")

    assert done.code == 69
    assert f"no agent answers at 127.0.0.1:{port}" in done.said
    assert "UNDERSTUDY_AGENT_METRICS_PORT" in done.said


async def test_an_agent_that_takes_the_command_for_another_machines_says_where_to_run_it():
    agent = AgentPort(is_called=False, is_near=False)
    async with agent.open() as port:
        done = await drain(port, "--self")

    assert done.code == 69
    assert "takes a drain from its own machine alone" in done.said
    assert "Run the command where the agent runs" in done.said
    assert not agent.lifetime.is_draining


async def test_what_is_no_agent_is_told_apart():
    async with metrics_port("127.0.0.1", 0, lambda: (b"", "text/plain")) as port:
        done = await drain(str(port), "--self")

    assert done.code == 69
    assert "is no agent, or an older one" in done.said


async def test_a_server_elsewhere_is_drained_by_no_command():
    done = await drain("1")

    assert done.code == 2
    assert "--self" in done.said


@pytest.mark.parametrize(("host", "near"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")])
async def test_an_agent_that_listens_at_every_address_is_asked_at_a_near_one(host, near):
    async with AgentPort(is_called=False).open() as port:
        pass
    understudy = CommandLine(None)
    environment = {"UNDERSTUDY_AGENT_METRICS_PORT": port, "UNDERSTUDY_METRICS_HOST": host}

    done = await understudy.beside("server", "drain", "--self", **environment)

    assert f"no agent answers at {near}:{port}" in done.said
