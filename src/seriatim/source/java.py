"""Finds the Java that runs Spark, the embedded broker and the fetching of jars. Installs nothing."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from seriatim.errors import ConfigurationError

MAJOR_MIN: Final = 17
ANSWER_SECONDS_MAX: Final = 60.0
INSTALL_HINT: Final = "run `make setup`, or install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless)"


def find_java() -> Path:
    """`$JAVA_HOME/bin/java`, else `java` on the PATH."""
    home = os.environ.get("JAVA_HOME", "")
    if home:
        return _java_of_home(Path(home))
    found = shutil.which("java")
    if found is None:
        raise ConfigurationError("Java is not installed", detail="no `java` on the PATH", hint=INSTALL_HINT)
    return Path(found)


def java_version(java: Path) -> int:
    """The major version (17, 21, ...) that this `java` says it is."""
    text = _version_text(java)
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        raise ConfigurationError(f"{java} does not tell its version", detail=text[-500:], hint=INSTALL_HINT)
    major, minor = int(match[1]), int(match[2] or 0)
    # Up to Java 8 the major version came second: "1.8.0_392".
    return minor if major == 1 else major


def usable_java() -> Path:
    """The Java found, once it is known to be new enough."""
    java = find_java()
    major = java_version(java)
    if major < MAJOR_MIN:
        raise ConfigurationError(
            f"Java {major} is too old: {MAJOR_MIN} or 21 is needed",
            detail=f"found {java}",
            hint=INSTALL_HINT,
            major=major,
        )
    return java


def _java_of_home(home: Path) -> Path:
    # Spark obeys JAVA_HOME without looking further; falling back to the PATH here would only delay the error.
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        raise ConfigurationError(
            "JAVA_HOME does not hold a Java",
            detail=f"{java} is not an executable file",
            hint="unset JAVA_HOME, or point it at a Java 17 or 21",
        )
    return java


def _version_text(java: Path) -> str:
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{java} does not run", detail=str(error), hint=INSTALL_HINT) from error
    return answer.stderr + answer.stdout
