"""A real S3 server for the tests: versitygw, built once from its pinned source, on a folder of this machine.

Where it can not be had, the tests that need it are skipped, and say so.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from seriatim.source.jars import cache_folder
from seriatim.source.lock import exclusive
from seriatim.store import Store
from tests.s3_proxy import Proxy, proxy_before

VERSION: Final = "v1.8.0"
MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
KEY, SECRET, REGION = "testing-key", "not-a-secret-but-looks-like-one", "us-east-1"
BUCKET: Final = "tests"
BUILD_SECONDS_MAX: Final = 900.0
START_SECONDS_MAX: Final = 30.0

_numbers = count()


class Server:
    """A running S3 server with one bucket, on the loopback."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def options(self, url: str | None = None) -> dict[str, str]:
        """A job's `storage_options`; `url`: of a proxy before it. As many second tries as anybody has, and shorter
        waits before them: nobody is to be spared here."""
        given = {name.lower(): value for name, value in self.environment(url).items()}
        return given | {"retry_backoff": "5ms", "retry_backoff_max": "50ms"}

    def environment(self, url: str | None = None) -> dict[str, str]:
        """The same as environment variables, which is how a user has them."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": url or self.url,
            "AWS_ALLOW_HTTP": "true",
        }

    def new_url(self) -> str:
        return f"s3://{BUCKET}/jobs/{next(_numbers)}"

    def new_store(self) -> Store:
        return Store(self.new_url(), self.options())


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Server]:
    """Serve `folder`; ends with the block."""
    binary = _binary()
    (folder / BUCKET).mkdir(parents=True)
    port = _free_port()
    arguments = [str(binary), "--port", f"127.0.0.1:{port}", "--health", "/health", "--quiet", "--region", REGION]
    with (folder.parent / "versitygw.log").open("wb") as log:
        process = subprocess.Popen(
            [*arguments, "posix", *options, str(folder)],
            env={"ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET, "HOME": str(folder.parent)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(port, process)
            yield Server(f"http://127.0.0.1:{port}", folder)
        finally:
            process.kill()
            process.wait(30)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None, f"versitygw ended at once with {process.returncode}"
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(f"versitygw did not answer within {START_SECONDS_MAX:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _binary() -> Path:
    """Built on first use, which takes a minute or two."""
    folder = cache_folder() / "tools" / f"versitygw-{VERSION}"
    binary = folder / "versitygw"
    with exclusive(folder.parent / "versitygw.lock", wait_seconds_max=BUILD_SECONDS_MAX):
        if not binary.exists():
            _build(folder)
    return binary


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("No Go on the PATH, which builds versitygw: nothing was tested against a real S3 server.")
    with tempfile.TemporaryDirectory(dir=folder.parent) as workshop:
        built = subprocess.run(
            [go, "install", MODULE],
            env=os.environ | {"GOBIN": workshop},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS_MAX,
            check=False,
        )
        if built.returncode:
            reason = f"{MODULE} could not be built ({built.stderr.strip()[-300:]})"
            pytest.skip(f"{reason}: nothing was tested against a real S3 server.")
        folder.mkdir(exist_ok=True)
        Path(workshop, "versitygw").rename(folder / "versitygw")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("s3") / "served") as server:
        yield server


@pytest.fixture
def careless_s3(tmp_path: Path) -> Iterator[Server]:
    """One that takes no notice of `If-None-Match`: without metadata, this server does not."""
    with running(tmp_path / "served", "--nometa") as server:
        yield server


@pytest.fixture
def proxy(s3: Server) -> Iterator[Proxy]:
    with proxy_before(s3.url) as made:
        yield made
