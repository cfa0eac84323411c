"""The example judge of the how-to, word for word as a process of its own, before a chat endpoint of the test."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from loopback.receiver import Answer, ReceiverServer

from understudy.adapters.http.judges import HttpJudges
from understudy.core.canary.judge_question import question_to_json
from understudy.core.canary.judgement_records import JudgeOutcome

PAGE = Path(__file__).parents[3] / "docs/how-to/ask-a-judge.md"
GOOD, BAD = {"label": "It left our store yesterday."}, {"label": "Please wait."}
pytestmark = pytest.mark.timeout(60)


class ChatServer(ReceiverServer):
    """Speaks OpenAI's protocol: prefers the longer answer, in whatever place it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.instead: Answer | None = None

    async def _answer(self, _event_id: str | None) -> Answer:
        if self.instead is not None:
            return self.instead
        *_, last = orjson.loads(self.requests[-1][1])["messages"]
        shown = orjson.loads(last["content"].strip("=\n"))
        better = "First." if len(shown["first"]["label"]) > len(shown["second"]["label"]) else "SECOND"
        return 200, "", orjson.dumps({"choices": [{"message": {"role": "assistant", "content": better}}]})


@asynccontextmanager
async def judging(chat: ChatServer, folder: Path) -> AsyncIterator[HttpJudges]:
    """Run the page's script, and yield the judges that know it."""
    script = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert script is not None
    (folder / "judge.py").write_text(script[1])
    chat_settings = {"CHAT_URL": f"{chat.url}/v1/chat/completions", "CHAT_KEY": "s3cr3t", "CHAT_MODEL": "small"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(folder / "judge.py"),
        env={**os.environ, **chat_settings, "PORT": "0"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        port = int((await process.stdout.readline()).split()[-1])
        judges = HttpJudges({"quality": f"http://127.0.0.1:{port}/ask"}, {}, timeout_seconds=30)
        yield judges
        await judges.close()
    finally:
        process.kill()
        await process.wait()


async def test_the_example_judge_asks_a_chat_endpoint_and_answers_nothing_where_that_is_no_verdict(tmp_path: Path):
    inputs = {"question": "Where is my parcel?"}
    questions = [
        question_to_json(f"judge_{number}", "replies", inputs, *pair)
        for number, pair in enumerate([(GOOD, BAD), (BAD, GOOD)])
    ]
    async with ChatServer() as chat, judging(chat, tmp_path) as judges:
        said = [await judges.ask("quality", f"judge_{number}", body) for number, body in enumerate(questions)]
        sent = chat.requests[0][0]["authorization"], orjson.loads(chat.requests[0][1])["model"]
        others = []
        for content in (b'{"choices": [{"message": {"content": "Both have merits"}}]}', b"{}"):
            chat.instead = (200, "", content)
            others.append((await judges.ask("quality", "judge_0", questions[0])).outcome)
        chat.instead = (500, "", b"")
        others.append((await judges.ask("quality", "judge_0", questions[0])).outcome)

    assert [(answer.outcome, answer.difference) for answer in said] == [
        (JudgeOutcome.ANSWERED, 1.0),
        (JudgeOutcome.ANSWERED, -1.0),
    ]
    assert sent == ("Bearer s3cr3t", "small")
    assert others == [JudgeOutcome.FAILED] * 3
