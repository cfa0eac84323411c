"""A bucket of a scripted server with one object, of which a request for its content may go wrong."""

from collections.abc import Callable

from loopback.scripted_server import Answering

LISTED = "Thu, 26 Nov 2026 11:00:00 GMT"


class Bucket:
    """Answers for an object, by whatever key; of the bucket ``absent`` there is none."""

    def __init__(self, content: bytes, *faults: Callable[[Answering, bytes, dict[str, str]], object]) -> None:
        self._content = content
        self.faults = list(faults)

    def __call__(self, answering: Answering) -> None:
        headers = {"etag": '"a"', "last-modified": LISTED}
        if answering.asked.path.startswith("/absent"):
            answering.send(404, b"<Error><Code>NoSuchBucket</Code></Error>")
            return
        if answering.asked.method == "HEAD":
            answering.send(200, self._content, headers)
            return
        first, last = map(int, answering.asked.headers["range"].removeprefix("bytes=").split("-"))
        headers["content-range"] = f"bytes {first}-{last}/{len(self._content)}"
        part = self._content[first : last + 1]
        if self.faults:
            self.faults.pop(0)(answering, part, headers)
        else:
            answering.send(206, part, headers)
