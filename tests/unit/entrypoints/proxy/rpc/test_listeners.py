import socket

import pytest

from understudy.entrypoints.proxy.rpc.listeners import stop_listening


def test_a_port_is_left_and_what_was_accepted_goes_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        address = listener.getsockname()
        with socket.create_connection(address) as caller, listener.accept()[0] as accepted:
            found = stop_listening(address[1])

            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            caller.sendall(b"asked")
            assert accepted.recv(16) == b"asked"
        with socket.create_connection(other.getsockname()):
            pass
        assert found == 1
        assert listener.fileno() >= 0


def test_where_nothing_listens_nothing_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert stop_listening(port) == 0
