"""Certificate authorities of the machine, which tests of loopback servers do without."""

from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

_END = "-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have HTTP clients trust one authority in place of a hundred, in this process and in those it starts.

    Each client reads all of them when it is made: 25 ms of a processor, more than most tests take in all. A test that
    speaks TLS names an authority of its own. There is one, since that of object stores refuses to work without any.
    """
    first = Path(certifi.where()).read_text().partition(_END)[0] + _END
    folder = tmp_path_factory.mktemp("authority")
    file = folder / "one.pem"
    file.write_text(first[first.index("-----BEGIN") :])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", str(file))
        environment.setenv("SSL_CERT_DIR", str(folder))
        yield
