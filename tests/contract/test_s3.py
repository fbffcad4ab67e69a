"""What only a real S3 server can show: what goes wrong on the way to it is found out, said clearly, and told apart."""

import traceback
from pathlib import Path

import pyarrow as pa
import pytest

from seriatim import create_if_absent, paths
from seriatim.errors import ConfigurationError, SeriatimError
from seriatim.ledger.delta import OutputTable
from seriatim.store import Store
from seriatim.tools.doctor import examine
from tests.s3 import KEY, SECRET, Server
from tests.s3_proxy import ALL, ERROR, LOST, RESET, Asked, Proxy, every, once


def is_create(asked: Asked) -> bool:
    return asked.create


@pytest.mark.parametrize("fault", [ERROR, LOST])
def test_a_create_that_succeeded_and_whose_answer_was_lost_is_found_to_be_ours(
    s3: Server, proxy: Proxy, fault: str
) -> None:
    store = Store(s3.new_url(), s3.options(proxy.url))
    proxy.plan = once(fault, is_create)
    assert store.create("a", b"ours")
    assert proxy.broken == [fault]
    assert store.read("a") == b"ours"


@pytest.mark.parametrize("fault", [ERROR, LOST, RESET])
def test_a_create_with_a_lost_answer_is_not_taken_for_ours_if_it_is_another_ones(
    s3: Server, proxy: Proxy, fault: str
) -> None:
    url = s3.new_url()
    Store(url, s3.options()).create("a", b"another one's")
    store = Store(url, s3.options(proxy.url))
    proxy.plan = once(fault, is_create)
    assert not store.create("a", b"ours")
    assert proxy.broken == [fault]
    assert store.read("a") == b"another one's"


@pytest.mark.parametrize("fault", ALL)
def test_trouble_on_every_third_request_is_not_even_noticed(s3: Server, proxy: Proxy, fault: str) -> None:
    store = Store(s3.new_url(), s3.options(proxy.url))
    proxy.plan = every(3, fault)
    for number in range(5):
        assert store.create(f"a/{number}", b"%d" % number)
    assert [store.read(name) for name in store.names("a")] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(proxy.broken) >= 3


def test_a_storage_that_ignores_the_condition_is_found_out_and_refused(careless_s3: Server, tmp_path: Path) -> None:
    store = careless_s3.new_store()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="lets a second writer replace an object") as caught:
            create_if_absent.prove(store)
        assert "If-None-Match" in caught.value.hint
    (check,) = [check for check in examine(None, store, tmp_path / "no-broker") if check.name == "storage"]
    assert not check.ok
    assert "were told that they had created it" in check.found
    assert "If-None-Match" in check.hint


def test_the_proof_at_the_start_costs_two_requests_and_leaves_what_is_there(s3: Server, proxy: Proxy) -> None:
    store = Store(s3.new_url(), s3.options(proxy.url))
    create_if_absent.prove(store)
    before = store.read(paths.PROOF)
    proxy.asked.clear()
    create_if_absent.prove(store)
    assert [asked.method for asked in proxy.asked] == ["PUT", "GET"]
    assert store.read(paths.PROOF) == before


def test_what_is_wrong_with_the_storage_is_said_and_no_credentials_with_it(s3: Server) -> None:
    strangers = Store(s3.new_url(), s3.options() | {"aws_secret_access_key": f"{SECRET}-and-wrong"})
    nowhere = Store("s3://no-such-bucket/books", s3.options())
    shown = []
    for store, said in ((strangers, "No permission to write"), (nowhere, "is not there")):
        with pytest.raises(ConfigurationError, match=said) as caught:
            store.create("a", b"1")
        shown.append("".join(traceback.format_exception(caught.value)))
        with pytest.raises(SeriatimError) as unreadable:
            OutputTable.create(store, "changes", "seriatim/books", pa.schema([("id", pa.string())]))
        shown.append("".join(traceback.format_exception(unreadable.value)))
    assert [text for text in shown if SECRET in text or KEY in text] == []
