"""Everything on one machine: the processes that ``understudy demo`` starts, watches and stops."""
