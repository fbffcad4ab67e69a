#!/usr/bin/env bash
# Makes .venv, and installs what is missing and may be installed. Called by `make`; does nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/.."

python="${PYTHON:-python3}"
stamp=.venv/.setup
inputs=(pyproject.toml constraints.txt src/seriatim/source/ivy.xml deploy/setup.sh)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Runs as root, when that takes no password. Packages are all it is used for.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

# Installs the first of the given packages that this system has.
install_first_of() {
    command -v apt-get >/dev/null || return 1
    as_root apt-get update -qq || return 1
    local package
    for package in "$@"; do
        if as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$package" >/dev/null; then
            say "installed $package"
            return 0
        fi
    done
    return 1
}

check_python() {
    "$python" -c '' 2>/dev/null ||
        fail "$python does not run; install Python 3.11 or newer, or run make with PYTHON=/path/to/python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$("$python" --version) is too old; Python 3.11 or newer is needed: run make with PYTHON=/path/to/python"
}

# Debian ships venv without the pip it needs.
check_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    local version
    version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    say "this Python can not make virtual environments; installing python$version-venv"
    install_first_of "python$version-venv" python3-venv && "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "install the package python$version-venv (or python3-venv) as root, then run make again"
}

make_venv() {
    say "installing Python packages into .venv (about a minute the first time)"
    [ -x .venv/bin/python ] || "$python" -m venv --clear .venv
    # Our own build tool comes from the constraints too, so that two set-ups a year apart are the same.
    .venv/bin/python -m pip install --quiet -c constraints.txt setuptools
    .venv/bin/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
}

java_usable() { .venv/bin/python -c 'from seriatim.source.java import usable_java; usable_java()' 2>/dev/null; }

check_java() {
    java_usable && return
    if [ -n "${JAVA_HOME:-}" ]; then
        fail "JAVA_HOME is $JAVA_HOME, and no Java 17 or newer is there; unset it, or point it at one"
    fi
    say "installing Java"
    install_first_of openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless && java_usable ||
        fail "Java 17 or 21 is needed and could not be installed; as root: apt-get install openjdk-17-jre-headless"
}

fingerprint="$(cat "${inputs[@]}" | cksum)"
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$fingerprint" ]; then exit 0; fi

check_python
check_venv
make_venv
check_java
.venv/bin/python -m seriatim.source.jars
# Last: a set-up that was interrupted starts again.
printf '%s\n' "$fingerprint" >"$stamp"
say "ready"
