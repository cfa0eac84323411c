"""Authorities, and certificates of theirs, made with openssl when a test needs them."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Certificate(NamedTuple):
    """Files in PEM."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates; ``ca.pem`` is what those who trust it have."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl on this machine")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / "ca.pem"
        self._key = folder / "ca.key"
        extensions = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
        _openssl("req", "-x509", *_new_key(self._key), "-out", self.ca, "-subj", "/CN=test authority", *extensions)

    def sign(self, name: str) -> Certificate:
        """Return a server's certificate for one name or IPv4 address."""
        cert, key, request = (self.folder / f"{name}.{ending}" for ending in ("pem", "key", "csr"))
        _openssl("req", *_new_key(key), "-out", request, "-subj", "/CN=server")
        kind = "IP" if name.replace(".", "").isdigit() else "DNS"
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={kind}:{name}\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth\n"
                              "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")  # fmt: skip
        _openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial",
                 "-days", "2", "-extfile", extensions, "-out", cert)  # fmt: skip
        return Certificate(cert, key)


def _new_key(path: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path), "-days", "2"]


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
