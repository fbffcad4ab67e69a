"""Job files: from a path to a `Job`, and from a driver to its executors.

A job file is sent to executors as *source*, and run there as a module of its own: its row types are then real classes
in a real module (typed structs can not be pickled by value), and nothing unpickles what came from outside.
"""

import hashlib
import sys
import traceback
import types
from pathlib import Path
from typing import Final

import msgspec

from seriatim.errors import ConfigurationError, SeriatimError
from seriatim.job import Job

_MODULE_PREFIX: Final = "seriatim_job_"


class JobRef(msgspec.Struct, frozen=True):
    """A job file's text and where it came from; enough to have the job again in another process."""

    path: str
    source: str
    attribute: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    def load(self) -> Job:
        """The job, building its module on first use in this process."""
        identity = hashlib.sha256(f"{self.path}\n{self.source}".encode()).hexdigest()
        name = f"{_MODULE_PREFIX}{identity[:16]}"
        module = sys.modules.get(name)
        if module is None:
            module = _execute(name, self.path, self.source)
        job = getattr(module, self.attribute, None)
        if not isinstance(job, Job):
            raise ConfigurationError(
                f"{self.path} has no job named {self.attribute}.",
                hint=f"Write `{self.attribute} = s.Job(...)` in it, or name another: `{self.path}:other`.",
            )
        return job


def read_job_file(target: str) -> JobRef:
    """`books.py`, or `books.py:other` where the job is not called `job`."""
    name, _, attribute = target.rpartition(":") if target.rpartition(":")[0].endswith(".py") else (target, "", "")
    path = Path(name)
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"There is no job file {path}.", hint="Check the path; `seriatim init` writes one that runs."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The job file {path} can not be read: {error}.", hint="Give a Python file."
        ) from error
    return JobRef(str(path.resolve()), source, attribute or "job")


def _execute(name: str, path: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = path
    # Type hints are looked up in sys.modules, so it must be there before the classes are made.
    sys.modules[name] = module
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # a job file may import its neighbours
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SeriatimError | KeyboardInterrupt):
            raise
        raise ConfigurationError(
            f"The job file {path} could not be loaded: {type(error).__name__}: {error}",
            detail=_where(error, path),
            hint="Correct the file; `python` itself would stop at the same place.",
        ) from error
    return module


def _where(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {(error.text or '').strip()}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"line {frames[-1].lineno}" if frames else ""
