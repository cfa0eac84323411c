"""How Arrow comes by memory, in a process that makes files of the log again and again.

A page of memory costs 0.3 to 3 µs when it is first touched, and Arrow's usual allocator gives pages back within
milliseconds: that was a third of what a file costs. Of its allocators jemalloc alone can be told to keep them; a thread
of its own gives back what no file has used meanwhile.
"""

import os

KEPT_MS = 30_000
"""Files of a busy proxy follow each other within seconds."""
_SETTINGS = {
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
    "JE_ARROW_MALLOC_CONF": f"dirty_decay_ms:{KEPT_MS},muzzy_decay_ms:{KEPT_MS}",
}


def keep_arrow_memory() -> None:
    """Have Arrow keep memory for :data:`KEPT_MS`, unless the environment says otherwise; call it before its import.

    Arrow's own calls reach neither all of its parts nor the memory of every thread.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
