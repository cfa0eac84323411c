"""What ``understudy doctor`` and ``version check`` find: good, worth a look, or a problem, and what to do next."""
