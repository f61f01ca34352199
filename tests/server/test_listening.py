"""The address: had before the load, open when ready, and one line when it cannot be had."""

import socket
from contextlib import closing

import pytest

from draftproof.errors import EnvironmentProblem, UsageError
from draftproof.server.listening import open_address, take_address, url_of


def connects(address: socket.socket) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(address.getsockname()) == 0


def test_clients_are_refused_until_the_address_is_opened() -> None:
    with closing(take_address("127.0.0.1", 0)) as address:
        assert not connects(address)
        open_address(address)
        assert connects(address)


def test_a_port_in_use_is_said_before_anything_is_loaded() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=f"127.0.0.1:{port} is in use") as caught:
            take_address("127.0.0.1", port)
    assert "--port" in caught.value.remedy


def test_of_two_servers_that_load_at_the_same_time_the_second_to_be_ready_is_told() -> None:
    with closing(take_address("127.0.0.1", 0)) as first:
        second = take_address("127.0.0.1", first.getsockname()[1])
        open_address(first)
        with closing(second), pytest.raises(EnvironmentProblem, match="is in use"):
            open_address(second)


def test_a_host_that_is_none_is_a_wrong_option() -> None:
    with pytest.raises(UsageError, match="--host no such host"):
        take_address("no such host", 8000)


def test_an_address_of_another_machine_cannot_be_had() -> None:
    with pytest.raises(EnvironmentProblem, match="no address of this machine"):
        take_address("192.0.2.1", 8000)


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:")]
)
def test_the_url_is_one_that_a_client_on_this_machine_can_use(host: str, url: str) -> None:
    with closing(take_address(host, 0)) as address:
        assert url_of(address) == f"{url}{address.getsockname()[1]}"
