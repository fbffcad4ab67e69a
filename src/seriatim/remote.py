"""How an object store is opened: what the job says, what the environment says, and our own defaults, in one place.

Two libraries open the same storage, obstore for objects and delta-rs for tables. Both are given everything in so many
words, and the same: neither is left to find something of its own. Values may be credentials; nothing here shows them.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from seriatim.durations import milliseconds, seconds
from seriatim.errors import ConfigurationError

SCHEMES: Final = {"s3": "aws", "gs": "google", "az": "azure", "abfs": "azure", "abfss": "azure"}

# What is taken from the environment and travels to executors. Roles (web identity, containers, instances) do not: each
# process has its own.
_ENVIRONMENT: Final = {
    "aws": (
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
        "AWS_SKIP_SIGNATURE", "AWS_UNSIGNED_PAYLOAD", "AWS_CHECKSUM_ALGORITHM", "AWS_REQUEST_PAYER",
        "AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_KMS_KEY_ID", "AWS_SSE_BUCKET_KEY_ENABLED", "AWS_SSE_CUSTOMER_KEY_BASE64",
    ),
    "google": (
        "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
    "azure": (
        "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CLIENT_ID", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_STORAGE_TENANT_ID",
        "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_ENDPOINT", "AZURE_ALLOW_HTTP",
    ),
}  # fmt: skip
# Of several names for one thing, the last that has a value counts.
_ONE_NAME: Final = {
    "aws_default_region": "aws_region",
    "aws_endpoint": "aws_endpoint_url",
    "aws_endpoint_url_s3": "aws_endpoint_url",
    "aws_token": "aws_session_token",
    "aws_allow_http": "allow_http",
    "azure_allow_http": "allow_http",
}
# Options of the connection, which have no cloud in their names.
_CLIENT: Final = (
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes", "timeout", "user_agent",
)  # fmt: skip
_RETRIES, _RETRY_TIMEOUT = "max_retries", "retry_timeout"
_BACKOFF, _BACKOFF_MAX = "retry_backoff", "retry_backoff_max"
_RETRY: Final = (_RETRIES, _RETRY_TIMEOUT, _BACKOFF, _BACKOFF_MAX)
_APART: Final = (*_CLIENT, *_RETRY)
_DEFAULTS: Final = {
    # One file is one request: at 64 MiB it must get through a slow line. An answer that never comes must end, too.
    "timeout": "120s",
    "connect_timeout": "5s",
    # For a moment of trouble, about six seconds in all. For more, the job starts again from the ledger.
    _RETRIES: "6",
    _RETRY_TIMEOUT: "60s",
    _BACKOFF: "100ms",  # before the first of them; each next one waits twice as long
    _BACKOFF_MAX: "5s",
}
# Other ways to commit. Each is either slower and needs a service, or lets a second driver replace what a first wrote.
_OTHER_WAYS: Final = ("aws_s3_locking_provider", "aws_copy_if_not_exists", "aws_s3_allow_unsafe_rename")
_CONDITIONAL_PUT: Final = "aws_conditional_put"
_ETAG: Final = "etag"  # `If-None-Match: *`, which S3 and most of what speaks its language know
_DOCUMENT: Final = re.compile(r"\n\s*Debug source:|<\?xml|<!DOCTYPE|<html|<Error", re.IGNORECASE)
_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|↳")
_REASON_CHARACTERS: Final = 500
_REGION: Final = "us-east-1"  # where an endpoint is named, it hardly ever matters, and must be something


def checked(url: str) -> str:
    """A storage's URL if there can be one, without the slash at its end and in its usual scheme."""
    parts = urlsplit(url)
    if parts.scheme == "s3a":  # Hadoop's name for the same thing
        return checked(f"s3{url[3:]}")
    if parts.scheme not in SCHEMES:
        raise ConfigurationError(
            f"A storage can not be at {parts.scheme}://.",
            hint="Give a folder, or one of s3://bucket/folder, gs://, az:// and abfss://. HDFS is not among them.",
        )
    if not parts.hostname or parts.password is not None:
        raise ConfigurationError(
            f"The storage at {parts.scheme}:// has no bucket, or a password in its name.",
            hint="Write s3://bucket/folder; credentials belong in the environment or in storage_options.",
        )
    return url.rstrip("/")


def resolved(scheme: str, given: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """All that it takes to open the store, in any process, each option under one name. What is given comes before what
    is in the environment."""
    cloud = SCHEMES[scheme]
    inherited = {name: environment[name] for name in _ENVIRONMENT[cloud] if environment.get(name)}
    options = _named(cloud, inherited) | _named(cloud, given)
    if cloud == "aws":
        _refuse_other_ways(given, options, environment)
        options[_CONDITIONAL_PUT] = _ETAG
        if "aws_endpoint_url" in options:
            options.setdefault("aws_region", _REGION)
    return _DEFAULTS | options


def for_objects(options: Mapping[str, str]) -> dict[str, Any]:
    """As obstore takes them, from what `resolved` gave."""
    return {
        "config": {name: value for name, value in options.items() if name not in _APART},
        "client_options": {name: options[name] for name in _CLIENT if name in options},
        "retry_config": {
            "max_retries": int(options[_RETRIES]),
            "retry_timeout": timedelta(seconds=seconds(options[_RETRY_TIMEOUT])),
            "backoff": {
                "init_backoff": timedelta(seconds=seconds(options[_BACKOFF])),
                "max_backoff": timedelta(seconds=seconds(options[_BACKOFF_MAX])),
                "base": 2,
            },
        },
    }


def for_tables(options: Mapping[str, str]) -> dict[str, str]:
    """As delta-rs takes them, from what `resolved` gave."""
    return {name: value for name, value in options.items() if name not in (_BACKOFF, _BACKOFF_MAX)} | {
        "backoff_config.init_backoff": f"{milliseconds(options[_BACKOFF])}ms",
        "backoff_config.max_backoff": f"{milliseconds(options[_BACKOFF_MAX])}ms",
    }


def reason(error: Exception) -> str:
    """What either library has to say, in one line: without its colours, its dump of the request, and the document that
    the server answered, which repeats the key's name and all that was signed. Raise what is made of it `from None`:
    a traceback would show the rest, in an executor's log for one."""
    text = _DOCUMENT.split(str(error).strip(), maxsplit=1)[0]
    lines = [_DECORATION.sub("", line).strip() for line in text.splitlines()]
    return ": ".join(line for line in lines if line).rstrip(" :")[:_REASON_CHARACTERS]


def keyless(scheme: str, options: Mapping[str, str]) -> bool:
    """Are there no credentials in the options? Then the process must have a role."""
    words = ("_key", "_token", "_secret", "service_account", "credentials", "skip_signature")
    return scheme in SCHEMES and not any(word in name for name in options for word in words)


def _named(cloud: str, options: Mapping[str, str]) -> dict[str, str]:
    """In lower case, and one name for one thing."""
    named = {}
    for given, value in options.items():
        name = given.lower()
        if cloud == "aws" and not name.startswith("aws_") and name not in _APART:
            name = f"aws_{name}"  # both libraries know either form; two forms at once they do not
        named[_ONE_NAME.get(name, name)] = value
    return named


def _refuse_other_ways(given: Mapping[str, str], options: Mapping[str, str], environment: Mapping[str, str]) -> None:
    for name in (*_OTHER_WAYS, _CONDITIONAL_PUT):
        value = options.get(name) or environment.get(name.upper())
        if value and not (name == _CONDITIONAL_PUT and value == _ETAG):
            where = "the environment" if name not in _named("aws", given) else "storage_options"
            raise ConfigurationError(
                f"{name.upper()} is set in {where}, and a job commits in no way but one.",
                detail="Who owns an epoch is decided by create-if-absent (If-None-Match) in the storage itself.",
                hint=f"Take {name.upper()} out of {where}; no lock, no table of locks and no other setting is needed.",
            )
