#!/usr/bin/env bash
# Builds the contestants in Java with Maven, where it is there; their libraries come from Maven's own repository. Does
# nothing the second time.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v mvn >/dev/null; then
    echo "bench: Flink and Kafka Streams are left out: there is no Maven (mvn) to build them with"
    exit 0
fi
stamp=target/.built
fingerprint="$(cat pom.xml build.sh src/main/java/bench/*.java | cksum)"
if [ "$(cat "$stamp" 2>/dev/null)" = "$fingerprint" ]; then exit 0; fi

echo "bench: building the contestants in Java"
rm -rf target
mvn --quiet --batch-mode package
printf '%s\n' "$fingerprint" >"$stamp"
