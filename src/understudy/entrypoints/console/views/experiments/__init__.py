"""Pages of declared tests: the list, one with its report, and what is asked before an act on one."""
