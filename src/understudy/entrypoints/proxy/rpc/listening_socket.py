"""A socket to listen on, bound before there is an event loop: workers that are forked later share it."""

import socket


def bound_socket(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Return a socket that is bound, and does not listen yet.

    Args:
        host: An address of this machine.
        port: The port there.
        is_shared: Whether another process may bind the same place for itself: the one that this one takes over from.

    Raises:
        OSError: The place is taken, or not this process's to have.
    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((host, port))
    except OSError as problem:
        found.close()
        raise OSError(problem.errno, f"cannot listen on {host}:{port}: set UNDERSTUDY_GRPC_PORT") from None
    found.setblocking(False)
    return found
