"""The registry: what operators change in it, and what ``doctor``, ``db check`` and ``version check`` find."""
