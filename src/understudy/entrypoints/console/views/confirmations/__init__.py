"""The pages that ask before an act, with what it does and the same as a command."""
