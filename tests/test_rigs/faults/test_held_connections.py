"""The connections that a process holds, as the kernel lists them."""

import os
import socket

from rigs.faults.held_connections import held_connections


def test_only_established_connections_to_the_port_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        port = server.getsockname()[1]
        before = held_connections(os.getpid(), port)

        with socket.create_connection(server.getsockname()), server.accept()[0]:
            with socket.create_connection(other.getsockname()), other.accept()[0]:
                one = held_connections(os.getpid(), port)
            with socket.create_connection(server.getsockname()), server.accept()[0]:
                two = held_connections(os.getpid(), port)

        after = held_connections(os.getpid(), port)

    assert (before, one, two, after) == (0, 1, 2, 0)


def test_connections_of_another_process_are_not_its_own() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0],
    ):
        assert held_connections(os.getppid(), server.getsockname()[1]) == 0
