"""Makes the passwords of an installation, once: a file for each, and the URL of the database for each login.

``python tools/make_secrets.py deploy/compose/secrets --database postgres:5432/understudy``. What is there stays; a URL
is made from its password, so that the two agree, and so is the file of Redis' users, which lets the proxies' login do
what the shared cache needs and nothing else. The folder is its owner's alone; the files in it are readable, as a
container's process, which has another user id, reads them through a mount of each.
"""

import argparse
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

LOGINS = ("owner", "proxy", "monitor", "retention", "engineer", "agent")
OTHERS = ("postgres", "grafana", "redis")
REDIS_LOGIN = "proxy"
REDIS_COMMANDS = "+mget +set +ping +info +client|setinfo +select +hello"
"""Of the shared cache, of ``understudy doctor``, and of the client when it connects."""
PLACEHOLDERS = {"pagerduty_routing_key": "0" * 32, "channel_webhook_url": "http://127.0.0.1:9/nobody-is-told"}
"""Of Alertmanager, for a try on one machine; put yours in their place."""
SECRET_BYTES = 24
FOLDER_MODE, FILE_MODE = 0o700, 0o644


def make_secrets(folder: Path, database: str, redis: str, placeholders: Mapping[str, str]) -> list[str]:
    """Write what is missing into ``folder`` and return its names.

    Args:
        folder: Made when it is not there.
        database: ``host:port/name``.
        redis: A URL; without a login in it, it gets the one that is made for Redis.
        placeholders: What else is read, and by nobody who minds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(FOLDER_MODE)
    made = [f"{name}_password" for name in (*LOGINS, *OTHERS) if _write_new(folder / f"{name}_password")]
    for login in LOGINS:
        password = (folder / f"{login}_password").read_text(encoding="utf-8").strip()
        url = f"postgresql://{login}_login:{password}@{database}"
        if _write_new(folder / f"{login}_url", url):
            made.append(f"{login}_url")
    given = {**_of_redis(folder, redis), **placeholders}
    return made + [name for name, text in given.items() if _write_new(folder / name, text)]


def _of_redis(folder: Path, url: str) -> dict[str, str]:
    """Return the texts of the URL and of the file of users (``redis-server --aclfile``)."""
    password = (folder / "redis_password").read_text(encoding="utf-8").strip()
    users = (
        "user default off",
        f"user {REDIS_LOGIN} on #{sha256(password.encode()).hexdigest()} ~infer:* {REDIS_COMMANDS}",
    )
    if "@" in url:
        return {"redis_url": url, "redis_acl": "\n".join(users)}
    kept = folder / "redis_url"
    if kept.exists() and kept.read_text(encoding="utf-8").strip() == url:
        kept.unlink()  # of a release whose Redis asked for no password
    scheme, _, place = url.partition("://")
    return {"redis_url": f"{scheme}://{REDIS_LOGIN}:{password}@{place}", "redis_acl": "\n".join(users)}


def _write_new(path: Path, text: str | None = None) -> bool:
    if path.exists():
        return False
    path.touch(FILE_MODE)
    path.chmod(FILE_MODE)
    # Letters, digits, - and _ alone: nothing that a URL would have to escape.
    path.write_text((text or secrets.token_urlsafe(SECRET_BYTES)) + "\n", encoding="utf-8")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--database", default="postgres:5432/understudy", metavar="HOST:PORT/NAME")
    parser.add_argument("--redis", default="redis://redis:6379/0", metavar="URL")
    parser.add_argument("--placeholders", action="store_true", help="Also what Alertmanager reads, telling nobody.")
    options = parser.parse_args()
    placeholders = PLACEHOLDERS if options.placeholders else {}
    made = make_secrets(options.folder, options.database, options.redis, placeholders)
    print(f"{options.folder}: {', '.join(made)}" if made else f"{options.folder}: everything is there already")


if __name__ == "__main__":
    main()
