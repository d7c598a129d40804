"""The `compile` verb: build the candidate of a job."""

from pathlib import Path

from inferproof_remote import build, job


def compile_job(job_dir: Path) -> dict[str, object]:
    """Return how the build of `in/candidate` went; its artefacts lie in `out/files`."""
    spec = job.read_job(job_dir).spec
    job.report_progress(job_dir, 0, 1, "compiling")
    facts = build.build(
        manifest=job.as_table(spec["manifest"], "manifest"),
        source_dir=job_dir / "in" / "candidate",
        out_dir=job_dir / "out" / "files",
        limits=job.as_table(spec["limits"], "limits"),
        archs=job.as_texts(spec.get("archs", []), "archs"),
    )
    job.report_progress(job_dir, 1, 1, "compiled")
    return facts
