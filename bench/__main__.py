"""`python -m bench`: measure Retoma, and others beside it in the same run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import structlog
import uvloop

from bench import environments
from bench.lines import COMPARED, MEASURES
from bench.machine import described, load
from bench.microseconds import profile
from bench.report import Results, sections, write
from bench.server import ROOT, Server, serving
from bench.stage import Rig

PAGE = ROOT / "docs" / "performance.md"


def main() -> None:
    asked = _asked()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    results = uvloop.run(_measured(asked)) if asked.read is None else Results(**json.loads(asked.read.read_text()))
    if asked.json is not None:
        asked.json.write_text(json.dumps(results.as_json(), indent=2))
    parts = sections(results)
    print("\n\n".join(parts.values()))
    if asked.write:
        write(PAGE, parts)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "measures", nargs="*", metavar="MEASURE", help=f"of {', '.join(MEASURES)}; default: all, and --profile"
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds; each measures everything once")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of every count, for a quick look")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure others too")
    parser.add_argument("--peer", action="append", choices=environments.PEERS, help="only this peer; may be repeated")
    parser.add_argument("--profile", action="store_true", help="say where a job's microseconds go, and no more")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all that was measured")
    parser.add_argument("--read", type=Path, metavar="FILE", help="take what --json kept instead of measuring")
    parser.add_argument("--write", action="store_true", help=f"put the tables on {PAGE.relative_to(ROOT)}")
    asked = parser.parse_args()
    if unknown := set(asked.measures) - set(MEASURES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    return asked


async def _measured(asked: argparse.Namespace) -> Results:
    results = Results()
    async with serving() as server:
        results.machine = await described(server) | {"rounds": str(asked.repeats)}
        rig = Rig(server, asked.scale)
        try:
            if not asked.profile:
                await _rounds(asked, rig, results)
            if asked.profile or not asked.measures:
                results.profile = await profile(rig)
        finally:
            await server.close()
        results.machine["load when it ended"] = load()
    return results


async def _rounds(asked: argparse.Namespace, rig: Rig, results: Results) -> None:
    """Ours and theirs in turn, so that what disturbs the machine disturbs all alike."""
    chosen = asked.measures or list(MEASURES)
    peers = _prepared(asked.peer or list(environments.PEERS), results) if asked.peers else []
    compared = [line for line in COMPARED if line in chosen]
    for number in range(1, asked.repeats + 1):
        for name in chosen:
            if number == 1 or not MEASURES[name].once:
                await _measure(rig, name, number, results)
        for peer in peers if compared else ():
            await _measure_peer(rig.server, peer, compared, asked.scale, number, results)


def _prepared(peers: list[str], results: Results) -> list[str]:
    ready = []
    for peer in peers:
        _say(f"preparing {peer}")
        try:
            results.versions[peer] = environments.prepare(peer)
            ready.append(peer)
        except environments.Unavailable as why:
            results.troubles[peer] = str(why)
            _say(f"{peer}: {why}")
    return ready


async def _measure(rig: Rig, name: str, number: int, results: Results) -> None:
    try:
        samples = await MEASURES[name].take(rig)
    except Exception as error:  # noqa: BLE001  (it is told, and the others go on)
        why = f"not done after {rig.patience:g} s" if isinstance(error, TimeoutError) else f"{error!r}"
        results.troubles[f"{name}, round {number}"] = why
        _say(f"round {number}: {name}: {why}")
        return
    results.add(samples)
    for line, values in samples.items():
        _say(f"round {number}: {line} {', '.join(f'{value:,.2f}' for value in values)}")


async def _measure_peer(
    server: Server, peer: str, lines: list[str], scale: float, number: int, results: Results
) -> None:
    told = await environments.measure(server, peer, lines, scale)
    for figure in told.figures:
        results.add_peer(peer, figure)
        _say(f"round {number}: {peer} {json.dumps(figure)}")
    if told.trouble:
        results.troubles[f"{peer}, round {number}"] = told.trouble
        _say(f"round {number}: {peer}: {told.trouble}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
