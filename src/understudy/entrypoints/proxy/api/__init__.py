"""The ASGI application: routes, authorization, OpenAPI."""
