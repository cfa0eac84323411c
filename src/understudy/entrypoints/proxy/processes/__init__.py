"""Processes of the proxy: one uvicorn, or gunicorn with several workers."""
