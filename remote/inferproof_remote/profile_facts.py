"""What profiles on a CPU and on a GPU tell alike, in the form of the server's evidence."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import cast

from inferproof_remote import job
from inferproof_remote.incidents import Incident

NO_CEILINGS: Mapping[str, object] = {
    "memory_bytes_per_s": None,
    "cache_bytes_per_s": None,
    "flops_per_s": None,
    "last_level_cache_bytes": None,
}


def not_measured(incident: Incident) -> dict[str, object]:
    """Return the measured part of the facts where nothing was measured, and why."""
    return {
        "seconds_per_call": None,
        "bytes_per_s": None,
        "flops_per_s": None,
        "hot_spots": [],
        "bottleneck": f"not measured: {incident.code}: {incident.detail}",
        "incidents": [asdict(incident)],
    }


def not_built(built: Mapping[str, object]) -> Incident:
    """Return why a build failed."""
    said = cast("list[Mapping[str, object]]", built["diagnostics"])
    detail = f"{said[0]['file']}:{said[0]['line']}: {said[0]['message']}" if said else built["help"]
    return Incident(str(built["code"]), None, str(detail))


def sizes(spec: Mapping[str, object], name: str) -> dict[str, int]:
    """Return the whole numbers of one table of a job's spec."""
    table = job.as_table(spec.get(name, {}), name)
    return {key: int(job.as_number(value, key)) for key, value in table.items()}
