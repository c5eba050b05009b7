"""`python -m bench`: measure Retoma and other engines in the same run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import structlog
import uvloop

from bench import peer_environments
from bench.job_profile import profile
from bench.lines import COMPARED, MEASURES
from bench.machine import describe, get_load
from bench.report import Results, sections, write
from bench.server import ROOT, Server, open_server
from bench.testbed import Rig

PAGE = ROOT / "docs" / "performance.md"


def main() -> None:
    asked = _parse_arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    results = (
        uvloop.run(_run_measurements(asked)) if asked.read is None else Results(**json.loads(asked.read.read_text()))
    )
    if asked.json is not None:
        asked.json.write_text(json.dumps(results.as_json(), indent=2))
    parts = sections(results)
    print("\n\n".join(parts.values()))
    if asked.write:
        write(PAGE, parts)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "measures",
        nargs="*",
        metavar="MEASURE",
        help=f"what to measure: {', '.join(MEASURES)}; default: all, plus --profile",
    )
    parser.add_argument("--repeats", type=int, default=3, help="number of rounds; each measures everything once")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of every count, for a quick run")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="also measure other engines"
    )
    parser.add_argument(
        "--peer", action="append", choices=peer_environments.PEERS, help="measure only this engine; repeatable"
    )
    parser.add_argument("--profile", action="store_true", help="only profile where the time of a job goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to this file")
    parser.add_argument(
        "--read", type=Path, metavar="FILE", help="read measurements from a file of --json instead of measuring"
    )
    parser.add_argument("--write", action="store_true", help=f"update the tables in {PAGE.relative_to(ROOT)}")
    asked = parser.parse_args()
    if unknown := set(asked.measures) - set(MEASURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(MEASURES)}")
    return asked


async def _run_measurements(arguments: argparse.Namespace) -> Results:
    results = Results()
    async with open_server() as server:
        results.machine = await describe(server) | {"rounds": str(arguments.repeats)}
        rig = Rig(server, arguments.scale)
        try:
            if not arguments.profile:
                await _run_rounds(arguments, rig, results)
            if arguments.profile or not arguments.measures:
                results.profile = await profile(rig)
        finally:
            await server.close()
        results.machine["load when it ended"] = get_load()
    return results


async def _run_rounds(arguments: argparse.Namespace, rig: Rig, results: Results) -> None:
    """Measure Retoma and the others in turn, so other load on the machine affects all equally."""
    chosen = arguments.measures or list(MEASURES)
    peers = _prepare_peers(arguments.peer or list(peer_environments.PEERS), results) if arguments.peers else []
    compared = [line for line in COMPARED if line in chosen]
    for number in range(1, arguments.repeats + 1):
        for name in chosen:
            if number == 1 or not MEASURES[name].once:
                await _measure(rig, name, number, results)
        for peer in peers if compared else ():
            await _measure_peer(rig.server, peer, compared, arguments.scale, number, results)


def _prepare_peers(peers: list[str], results: Results) -> list[str]:
    ready = []
    for peer in peers:
        _print_line(f"preparing {peer}")
        try:
            results.versions[peer] = peer_environments.prepare(peer)
            ready.append(peer)
        except peer_environments.Unavailable as why:
            results.troubles[peer] = str(why)
            _print_line(f"{peer}: {why}")
    return ready


async def _measure(rig: Rig, name: str, number: int, results: Results) -> None:
    try:
        samples = await MEASURES[name].take(rig)
    except Exception as error:  # noqa: BLE001  (it is reported, and the others continue)
        why = f"not done after {rig.timeout:g} s" if isinstance(error, TimeoutError) else f"{error!r}"
        results.troubles[f"{name}, round {number}"] = why
        _print_line(f"round {number}: {name}: {why}")
        return
    results.add(samples)
    for line, values in samples.items():
        _print_line(f"round {number}: {line} {', '.join(f'{value:,.2f}' for value in values)}")


async def _measure_peer(
    server: Server, peer: str, lines: list[str], scale: float, number: int, results: Results
) -> None:
    told = await peer_environments.measure(server, peer, lines, scale)
    for figure in told.figures:
        results.add_peer(peer, figure)
        _print_line(f"round {number}: {peer} {json.dumps(figure)}")
    if told.trouble:
        results.troubles[f"{peer}, round {number}"] = told.trouble
        _print_line(f"round {number}: {peer}: {told.trouble}")


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
