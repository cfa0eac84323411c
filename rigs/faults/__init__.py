"""The fault matrix: what breaks, what may be seen of it, and what was seen (``make faults``)."""
