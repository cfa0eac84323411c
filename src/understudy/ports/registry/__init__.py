"""Models, versions and policies: as operators change them, and as proxies hear of it."""
