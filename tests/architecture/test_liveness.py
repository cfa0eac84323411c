"""The number of ``core/routing/proxy_liveness.py`` also stands in SQL, where Python cannot be asked."""

import re
from pathlib import Path

import understudy
from understudy.core.routing.proxy_liveness import LIVE_SECONDS

ADAPTERS = Path(understudy.__file__).parent / "adapters"


def test_sql_counts_a_proxy_as_stale_after_the_same_time():
    texts = [path.read_text(encoding="utf-8") for path in (*ADAPTERS.rglob("*.sql"), *ADAPTERS.rglob("*.py"))]

    found = [int(seconds) for text in texts for seconds in re.findall(r"seen_at > .*INTERVAL '(\d+) seconds'", text)]

    assert len(found) >= 2
    assert set(found) == {LIVE_SECONDS}
