import asyncio
import os
import time
from pathlib import Path

import pytest

from inferproof.backends import compile
from inferproof.backends.base import Work
from inferproof.core.campaign import Limits
from inferproof.core.candidate import Candidate, Manifest
from inferproof.core.canonical import digest_bytes
from inferproof.core.values import JobStatus
from inferproof.hosts.base import follow
from inferproof.hosts.local import Local

pytestmark = pytest.mark.integration
SOURCE = b'extern "C" void f(const float* x, float* y, long n) { if (n > 0) y[0] = x[0]; }\n'


def candidate(source: bytes) -> Candidate:
    manifest = Manifest(contract="copy", language="cpp", source="k.cpp", entry="f")
    return Candidate(digest="0" * 64, manifest=manifest, files={"k.cpp": digest_bytes(source)})


def test_the_second_compile_of_the_same_source_starts_no_job(tmp_path: Path):
    host, cache = Local(tmp_path), compile.CompileCache(tmp_path)
    subject = candidate(SOURCE)
    work = Work(
        job_id=f"c-{os.getpid()}-{time.monotonic_ns()}",
        wall_s=60,
        candidate=subject,
        contents={"k.cpp": SOURCE},
        limits=Limits(),
    )

    async def first() -> compile.CachedBuild:
        await host.start(compile.request(work))
        states = [state async for state in follow(host, work.job_id, wait_s=60)]
        assert states[-1].status is JobStatus.DONE
        folder = await host.result_dir(work.job_id)
        return compile.collect(folder, compile.parse((folder / "result.json").read_bytes()))

    def key() -> str:
        return compile.cache_key(subject, target="local", remote_digest=host.remote_digest)

    built = asyncio.run(first())
    assert built.facts.ok
    cache.keep(key(), built)
    began = time.perf_counter()
    found = compile.CompileCache(tmp_path).find(key())
    assert time.perf_counter() - began < 0.05
    assert found == built
    assert len(list((tmp_path / "jobs").iterdir())) == 1
