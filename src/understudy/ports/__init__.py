"""One Protocol per outside thing, by domain: the names of these modules tell what Understudy depends on.

Each has a real adapter; those that the request and its background work meet have an in-memory twin as well
(``adapters/memory``), and both pass the port's contract suite.
Errors that a port may raise are named on its methods; an adapter lets no vendor's error through.
"""
