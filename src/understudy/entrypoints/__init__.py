"""Parse, call one use case, render; no decisions."""
