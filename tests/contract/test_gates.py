"""Gates over HTTP and their twin: what each answer of a service comes to, and that nothing raises."""

from base64 import b64encode
from collections.abc import AsyncIterator

import pytest
from loopback.receiver import ReceiverServer

from understudy.adapters.http.gates import HttpGates
from understudy.adapters.memory.gates import MemoryGates
from understudy.core.alerts.alerts import Delivery
from understudy.core.rollout.gates import answer_of
from understudy.ports.rollout.gates import Gates

SECRET = "whsec_" + b64encode(b"k" * 32).decode()
ANSWERS = {
    "passes": (200, b"fine"),
    "refuses": (403, b"recall fell"),
    "undecided": (202, b""),
    "redirects": (307, b""),
    "fails": (500, b"busy"),
}


@pytest.fixture(params=["memory", "http"])
async def gates(request: pytest.FixtureRequest) -> AsyncIterator[Gates]:
    if request.param == "memory":
        # Of a pass the words are not read, as nothing shows them.
        said = {name: "" if status // 100 == 2 else words.decode() for name, (status, words) in ANSWERS.items()}
        yield MemoryGates({name: [Delivery(status, said[name])] for name, (status, _) in ANSWERS.items()})
        return
    async with ReceiverServer() as service:
        service.by_path = {f"/{name}": (status, "", words) for name, (status, words) in ANSWERS.items()}
        found = HttpGates({name: f"{service.url}/{name}" for name in ANSWERS}, SECRET, timeout_seconds=5)
        yield found
        await found.close()


@pytest.mark.parametrize(
    ("name", "passes", "detail"),
    [
        ("passes", True, ""),
        ("refuses", False, "recall fell"),
        ("undecided", None, "it has not decided"),
        ("redirects", None, "307"),
        ("fails", None, "500 busy"),
    ],
)
async def test_what_a_service_answers_is_a_pass_a_refusal_or_no_answer(gates: Gates, name, passes, detail):
    assert answer_of(await gates.ask(name, "gate_1", b"{}")) == (passes, detail)


async def test_a_gate_that_is_not_known_gives_no_answer(gates: Gates):
    assert gates.names == set(ANSWERS)
    assert answer_of(await gates.ask("invented", "gate_1", b"{}")).passes is None
