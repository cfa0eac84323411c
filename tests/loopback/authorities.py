"""Certificate authorities of the machine, which tests of loopback servers do without."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have HTTP clients trust none of the machine's authorities, in this process and in those it starts.

    Each client reads all of them when it is made: 25 ms of a processor, more than most tests take in all. A test that
    speaks TLS names an authority of its own.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("SSL_CERT_FILE", raising=False)
        environment.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("no-authorities")))
        yield
