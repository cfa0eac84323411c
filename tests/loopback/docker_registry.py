"""Debian's ``docker-registry`` on 127.0.0.1, with each way to ask for a login, and a token server of a test's own."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import httpx2
from joserfc.jwk import ECKey

from loopback.certificates import Authority
from loopback.issuer import signed
from loopback.oci_registry import BASIC, MANIFEST, USER, digest_of
from loopback.scripted_server import Answering, a_scripted_server
from understudy.adapters.embedded.loopback_ports import free_port

BINARY = os.environ.get("REGISTRY", "docker-registry")
Login = Literal["none", "basic", "token"]
PUBLIC = "models/"
"""Repositories below are read by anyone who fetches a token for that, as public ones of hosted registries are."""
HASHED = "$2b$04$Llpb3eyD1ba0cDA2erMoGugxmgQeaMvoaoQy5jEQLlv.YDPqCRi7S"
"""The test's password, as bcrypt: the registry takes nothing else."""
SERVICE, ISSUER = "the registry", "the token server"
START_SECONDS, STOP_SECONDS = 30.0, 20.0
TOKEN_SECONDS = 300
Layer = tuple[bytes, str, Mapping[str, str]]
"""Content, media type and annotations."""


def is_installed() -> bool:
    """Whether there is such a registry on this machine."""
    return shutil.which(BINARY) is not None


class TokenServer:
    """Gives tokens for the registry: to read what is public to anyone, all else to who shows the login."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        certificate = authority.sign("127.0.0.1")
        self.ca = authority.ca
        self._key = ECKey.import_key(certificate.key.read_text())
        lines = certificate.cert.read_text().splitlines()
        self._chain = ["".join(line for line in lines if not line.startswith("-"))]
        self.anonymous = 0
        """Tokens that were given without a login."""

    def __call__(self, answering: Answering) -> None:
        scopes = [scope.split(":") for scope in parse_qs(urlsplit(answering.asked.path).query).get("scope", [])]
        has_login = answering.asked.headers.get("authorization") == BASIC
        if "authorization" in answering.asked.headers and not has_login:
            answering.send(401)
            return
        given = [(name, actions.split(",")) for _, name, actions in scopes]
        if not has_login:
            given = [(name, ["pull"]) for name, actions in given if name.startswith(PUBLIC) and "pull" in actions]
            self.anonymous += 1
        answering.send(200, json.dumps({"token": self.token(*given)}).encode())

    def token(self, *given: tuple[str, Sequence[str]]) -> str:
        """Return a token for actions on repositories. Source: the distribution project's token specification."""
        now = int(time.time())
        access = [{"type": "repository", "name": name, "actions": list(actions)} for name, actions in given]
        times = {"iat": now, "nbf": now - 10, "exp": now + TOKEN_SECONDS}
        claims = {"iss": ISSUER, "sub": "", "aud": SERVICE, "jti": os.urandom(8).hex(), "access": access, **times}
        return signed(self._key, claims, x5c=self._chain)


class DockerRegistry:
    """A registry that can be away for a while: what was pushed is still there once it is back."""

    def __init__(self, folder: Path, login: Login, tokens: TokenServer | None, token_url: str) -> None:
        self.name = f"127.0.0.1:{free_port()}"
        self.login = login
        self.token_server = urlsplit(token_url).netloc
        """``host:port``, which is asked without TLS."""
        self._folder, self._tokens = folder, tokens
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "htpasswd").write_text(f"{USER}:{HASHED}\n")
        basic = {"htpasswd": {"realm": "reg", "path": str(folder / "htpasswd")}}
        bundle = "" if tokens is None else str(tokens.ca)
        token = {"realm": token_url, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": bundle}
        document: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(folder / "blobs")}},
            "http": {"addr": self.name},
            "auth": {"basic": basic, "token": {"token": token}, "none": {}}[login],
        }
        (folder / "config.yml").write_text(json.dumps(document))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self._folder / "registry.log"
        with log.open("ab") as output:
            arguments = [BINARY, "serve", str(self._folder / "config.yml")]
            self._process = subprocess.Popen(arguments, stdout=output, stderr=output)
        give_up = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        """End it: connections to it are refused."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(STOP_SECONDS)
            self._process = None

    def hang(self) -> None:
        """Have it stand still: connections to it are taken, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def push(self, repository: str, tag: str, *layers: Layer, annotations: Mapping[str, str] | None = None) -> str:
        """Push blobs and their manifest, and return its digest."""
        base = f"http://{self.name}/v2/{repository}"
        config: Layer = (b"{}", "application/vnd.oci.empty.v1+json", {})
        described = []
        with httpx2.Client(timeout=30, headers=self._pushing(repository)) as client:
            for content, media_type, named in (config, *layers):
                place = httpx2.URL(client.post(f"{base}/blobs/uploads/").headers["location"])
                done = client.put(place.copy_merge_params({"digest": digest_of(content)}), content=content)
                assert done.status_code == 201, done.text
                entry = {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}
                described.append({**entry, "annotations": named} if named else entry)
            document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
            said = {**document, "annotations": dict(annotations)} if annotations else document
            content = json.dumps(said).encode()
            done = client.put(f"{base}/manifests/{tag}", content=content, headers={"content-type": MANIFEST})
            assert done.status_code == 201, done.text
        return digest_of(content)

    def _pushing(self, repository: str) -> Mapping[str, str]:
        if self._tokens is not None:
            return {"authorization": f"Bearer {self._tokens.token((repository, ['pull', 'push']))}"}
        return {"authorization": BASIC} if self.login == "basic" else {}

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"http://{self.name}/v2/", timeout=5).status_code == (
                200 if self.login == "none" else 401
            )
        except httpx2.HTTPError:
            return False


@contextmanager
def a_docker_registry(folder: Path, login: Login) -> Iterator[DockerRegistry]:
    """Run one, which asks for logins in this way, until the end."""
    with ExitStack() as open_parts:
        tokens, url = None, ""
        if login == "token":
            tokens = TokenServer(folder / "tokens")
            url = f"{open_parts.enter_context(a_scripted_server(tokens)).url}/token"
        registry = DockerRegistry(folder, login, tokens, url)
        open_parts.callback(registry.stop)
        registry.start()
        yield registry
