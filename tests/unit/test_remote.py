"""What an object store is opened with: one place decides, for both libraries, and nothing of it is shown."""

import pickle
import subprocess
import sys
import traceback
from typing import Any

import pytest

from seriatim import remote
from seriatim.errors import ConfigurationError, SeriatimError
from seriatim.job import Job
from seriatim.ledger.delta import OutputTable
from seriatim.store import Store
from tests.unit.test_job import job

KEY, SECRET, TOKEN = "the-name-of-a-key", "a-secret-that-nobody-sees", "a-token-that-nobody-sees"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": TOKEN,
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",  # nobody is there
    "AWS_ALLOW_HTTP": "true",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def options(**given: str) -> dict[str, str]:
    return remote.resolved("s3", given, ENVIRONMENT)


def test_the_environment_is_enough() -> None:
    found = options()
    assert found["aws_access_key_id"] == KEY
    assert found["aws_secret_access_key"] == SECRET
    assert found["aws_session_token"] == TOKEN
    assert found["aws_endpoint_url"] == "http://127.0.0.1:1"
    assert found["allow_http"] == "true"


def test_what_is_given_comes_before_the_environment_under_whatever_name() -> None:
    found = options(endpoint="http://a", AWS_DEFAULT_REGION="eu", secret_access_key="mine", timeout="5s")
    assert (found["aws_endpoint_url"], found["aws_region"], found["timeout"]) == ("http://a", "eu", "5s")
    assert found["aws_secret_access_key"] == "mine"
    assert SECRET not in found.values()


def test_an_object_is_created_on_condition_always() -> None:
    assert options()["aws_conditional_put"] == "etag"
    assert remote.for_objects(options())["config"]["aws_conditional_put"] == "etag"
    assert remote.for_tables(options())["aws_conditional_put"] == "etag"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_S3_LOCKING_PROVIDER", "dynamodb"),
        ("AWS_COPY_IF_NOT_EXISTS", "multipart"),
        ("AWS_S3_ALLOW_UNSAFE_RENAME", "true"),
        ("AWS_CONDITIONAL_PUT", "disabled"),
    ],
)
def test_every_other_way_to_commit_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match="storage_options") as caught:
        remote.resolved("s3", {name.lower(): value}, {})
    assert name in caught.value.hint
    with pytest.raises(ConfigurationError, match="the environment"):
        remote.resolved("s3", {}, {name: value})


@pytest.mark.parametrize("url", ["hdfs://host/data", "ftp://host/data", "s3://", "s3://key:hush@bucket/data"])
def test_a_storage_that_can_not_be_one_is_refused_when_the_job_is_built(url: str) -> None:
    for build in (lambda: job(storage=url), lambda: Store(url)):
        with pytest.raises(ConfigurationError) as caught:
            build()
        assert "hush" not in str(caught.value)


def test_the_name_that_hadoop_gives_to_s3_is_another_name_for_the_same_place() -> None:
    assert Store("s3a://bucket/books/").url == Store("s3://bucket/books").url == "s3://bucket/books"


def test_a_store_opens_in_another_process_without_the_environment(environment: None) -> None:
    """As in an executor on another machine."""
    code = (
        "import pickle, sys; store = pickle.loads(sys.stdin.buffer.read()); store._store(); "
        "print(store.url, store.options['aws_secret_access_key'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(Store("s3://bucket/books")),
        capture_output=True,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    assert ended.stdout.decode().split() == ["s3://bucket/books", SECRET]


def test_no_credentials_are_shown_not_even_when_nothing_works(environment: None) -> None:
    store = Store("s3://bucket/books", {"max_retries": "0", "connect_timeout": "1s"})
    built: Job = job(storage="s3://bucket/books", storage_options={"aws_secret_access_key": SECRET})
    shown = [repr(store), repr(built), repr(built.__dict__["source"])]
    attempts: list[Any] = [
        lambda: store.create("a", b"1"),
        lambda: store.read("a"),
        lambda: list(store.names("a")),
        lambda: store.delete("a"),
        lambda: OutputTable.open(store, "changes", "seriatim/books"),
        lambda: Store("s3://bucket/books", {"nonsense": "1"}).read("a"),
    ]
    for attempt in attempts:
        with pytest.raises(SeriatimError) as caught:
            attempt()
        shown.append("".join(traceback.format_exception(caught.value)))
    assert [text for text in shown if KEY in text or SECRET in text or TOKEN in text] == []
    assert len(shown) == 3 + len(attempts)


@pytest.mark.parametrize(
    ("url", "given", "kind"),
    [
        ("gs://bucket/books", {}, "GCSStore"),
        (
            "az://container/books",
            {"azure_storage_account_name": "account", "azure_storage_account_key": "a2V5"},
            "Azure",
        ),
        ("abfss://container@account.dfs.core.windows.net/books", {"azure_storage_sas_key": "sig=1"}, "AzureStore"),
    ],
)
def test_the_stores_of_google_and_azure_can_be_made(url: str, given: dict[str, str], kind: str) -> None:
    """No more than that: no server of theirs is at hand."""
    store = Store(url, given)
    opened = store._store()
    assert type(opened).__name__.startswith(kind)
    assert opened.prefix == "books"
    assert set(given) <= set(store.table_options or {})
    assert "aws_conditional_put" not in store.options
