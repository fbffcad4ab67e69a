"""`make fuzz SECONDS=n`: all targets in turn, with new seeds, until the time is over or something fails."""

import argparse
import faulthandler
import importlib
import secrets
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.targets import TARGETS

ROUND_EXAMPLES = 200
HANG_SECONDS = 600  # of one round, shrinking included: a hang ends the process and shows where it was


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="of the first round, as an earlier run printed it")
    given = parser.parse_args()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.fuzz.{path.stem}")
    faulthandler.enable()
    spent = dict.fromkeys((target.name for target in TARGETS), 0.0)
    started, seed = time.monotonic(), secrets.randbits(32) if given.seed is None else given.seed
    first = seed
    while time.monotonic() - started < given.seconds:
        for target in TARGETS:
            if time.monotonic() - started >= given.seconds:
                break
            # Before, not after: of a crash of the interpreter this line is what is left.
            print(f"\rseed {seed}  {target.name:<90}", end="", file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            began = time.monotonic()
            try:
                target.explore(seed, ROUND_EXAMPLES)
            except Exception:  # noqa: BLE001 (whatever it is, it is what was looked for)
                faulthandler.cancel_dump_traceback_later()
                print(f"\n\n{target.name} failed. Again: make fuzz SEED={seed}\n\n{traceback.format_exc()}")
                return 1
            spent[target.name] += time.monotonic() - began
        seed += 1
    faulthandler.cancel_dump_traceback_later()
    print(f"\nseeds {first} to {seed - 1}: nothing failed", file=sys.stderr)
    for target in TARGETS:
        rate = target.executions / spent[target.name] if spent[target.name] else 0
        print(f"{target.executions:>9,} executions  {rate:>7,.0f}/s  {target.name}")
    print(f"{sum(target.executions for target in TARGETS):>9,} executions in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
