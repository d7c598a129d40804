"""From a sealed campaign to a running job, and from what the job left to evidence."""

import contextlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from inferproof.backends import (
    BACKENDS,
    command,
    compile,
    deploy,
    grade,
    search,
    serve,
    torch_profile,
)
from inferproof.backends.base import Against, Backend, Work
from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.contracts import resolve_dims
from inferproof.campaign.files import CampaignFiles
from inferproof.core.campaign import Target
from inferproof.core.candidate import Candidate
from inferproof.core.canonical import digest_json
from inferproof.core.errors import InfrastructureError, NotFound, Unreachable, UsageError
from inferproof.core.evidence import Evidence
from inferproof.core.lease_facts import LeaseFacts
from inferproof.core.machine import Machine
from inferproof.core.sealed import SealedContract
from inferproof.core.values import Digest, Entry, JobStatus, Purpose
from inferproof.engine_orders import (
    baseline_manifest,
    measures_of,
    model_path,
    needed,
    plans_of,
    searched,
    trials_of,
)
from inferproof.gates.student import rounds_for
from inferproof.hosts.base import Host, JobRequest, JobState
from inferproof.leasing import account, wish
from inferproof.ledger.bodies import Attempt
from inferproof.ledger.objects import ObjectStore
from inferproof.ledger.signing import KeeperKey
from inferproof.machines import Machines
from inferproof.orders import Order, kind_of
from inferproof.serving.engines import candidate_plan

LOG_TAIL_BYTES = 2000
RUN_LIMIT_S = 120.0


class Bench:
    """The hosts of a campaign, and what travels to them and back."""

    def __init__(self, state_dir: Path, candidates: CandidateStore, objects: ObjectStore) -> None:
        self._state_dir = state_dir
        self._candidates = candidates
        self._objects = objects
        self._cache = compile.CompileCache(state_dir)
        self.machines = Machines(state_dir)

    def host(self, order: Order) -> Host:
        """Return the machine on which an order is carried out."""
        return self.machines.host(order.target, order.target_name)

    def cached_build(self, order: Order) -> compile.CachedBuild | None:
        """Return an earlier build of the same sources on the same target, if there is one."""
        return None if order.candidate is None else self._cache.find(self._build_key(order))

    def request(self, order: Order, *, arm: bool, tries: int) -> JobRequest:
        """Return the job that carries out `order`, which so many `tries` of its speed precede."""
        campaign = order.files.campaign
        if order.tool == "run":
            return command.request(
                command.CommandOrder(
                    job_id=order.job_id,
                    argv=order.argv,
                    timeout_s=min(RUN_LIMIT_S, campaign.budget.job_wall_s),
                    limits=campaign.limits,
                    contents=self._contents(order.candidate),
                )
            )
        if order.kind == "serve":
            return serve.request(self._serve_order(order, arm=arm))
        if order.kind == "deploy":
            return deploy.request(self._deploy_order(order))
        if order.kind == "search":
            return search.request(self._search_order(order))
        work = self._work(order)
        if order.tool == "compile_kernel":
            return compile.request(work)
        artefacts = self._artefacts(order)
        against = self._against(order)
        if order.tool == "profile":
            settings = torch_profile.ProfileOrder(threads=self._threads(order), artefacts=artefacts)
            return torch_profile.request(work, against, settings)
        return grade.request(
            work,
            against,
            grade.GradeOrder(
                purpose=order.purpose,
                threads=self._threads(order),
                arm=arm,
                rounds=rounds_for(tries, against.sealed.kernel.workloads.timed.pairs),
                artefacts=artefacts,
            ),
        )

    async def start(self, request: JobRequest, order: Order, attempt: Attempt) -> None:
        """Start a recorded job, which will sign what it measured for exactly what it was asked."""
        asked = replace(request, spec={**request.spec, **wish(order, attempt)})
        secret = self._secret(asked.job_id, _asked(asked))
        await self.host(order).start(replace(asked, secret=secret))

    async def evidence(
        self, attempt: Attempt, files: CampaignFiles, entry: Entry, state: JobState
    ) -> Evidence:
        """Return what a finished job left, with its artefacts in the object store."""
        host = self._host_of(attempt, files)
        contract = files.contracts[attempt.contract] if attempt.contract else None
        backend = backend_of(kind_of(attempt.tool, contract))
        status, failure, facts, artefacts = state.status, state.failure, None, {}
        if status is JobStatus.DONE:
            try:
                folder = await host.result_dir(attempt.job_id)
                facts = backend.parse(self._signed_result(folder, attempt.job_id))
                artefacts = self._stored(folder / "files")
            except Unreachable:
                raise  # it is not lost: whoever looks again finds it
            except (OSError, InfrastructureError) as error:
                status, failure = JobStatus.FAILED, str(error)
        bare = Evidence(
            kind=backend.kind,
            job_id=attempt.job_id,
            status=status,
            purpose=attempt.purpose,
            target=attempt.target,
            candidate=attempt.candidate,
            contract=contract.digest if contract else None,
            started_at=entry.at,
            ended_at=max(datetime.now(UTC), entry.at),
            command=("inferproof_remote", backend.kind, attempt.job_id),
            remote_digest=host.remote_digest,
            artefacts=artefacts,
            failure=failure,
            machine=await self._machine(attempt, files),
            log_tail=await self._log_tail(host, attempt.job_id),
            lease=await self._lease(attempt, files, entry, state),
            starts=state.starts,
        )
        return bare.model_copy(update={backend.slot: facts})

    def evidence_in_cache(self, order: Order, entry: Entry) -> Evidence | None:
        """Return the evidence of a compile whose result is known already, if it is."""
        built = self.cached_build(order) if order.tool == "compile_kernel" else None
        if built is None:
            return None
        artefacts = {name: self._objects.put_bytes(data) for name, data in built.artefacts.items()}
        return Evidence(
            kind="compile",
            job_id=order.job_id,
            status=JobStatus.DONE,
            purpose=order.purpose,
            target=order.target_name,
            candidate=order.candidate.digest if order.candidate else None,
            contract=order.contract.digest if order.contract else None,
            started_at=entry.at,
            ended_at=max(datetime.now(UTC), entry.at),
            command=("cache", built.facts.cache_key),
            remote_digest=self.host(order).remote_digest,
            artefacts=artefacts,
            build=built.facts,
        )

    async def keep_build(self, attempt: Attempt, files: CampaignFiles, evidence: Evidence) -> None:
        """Keep a successful build for the next job on the same sources."""
        facts = evidence.build or (evidence.grade.build if evidence.grade else None)
        if facts is None or not facts.ok or attempt.candidate is None:
            return
        host = self._host_of(attempt, files)
        candidate = self._candidates.get(attempt.candidate)
        key = self._cache_key(candidate, files.targets[attempt.target], attempt.target)
        if self._cache.find(key) is None:
            folder = await host.result_dir(attempt.job_id)
            self._cache.keep(key, compile.collect(folder, facts))

    async def settled(self, attempt: Attempt, files: CampaignFiles) -> None:
        """Let the job's folder go when it is old: what it left is on record."""
        with contextlib.suppress(NotFound, InfrastructureError):
            await self._host_of(attempt, files).settle(attempt.job_id)

    def _secret(self, job_id: str, asked: str) -> str:
        """Return what the supervisor of a job signs its result with: a use of the keeper's key.

        It is good for what was asked and nothing else: `asked` is the digest of the job.
        """
        key = KeeperKey.load(self._state_dir / "keeper.key")
        return key.sign(f"result of {job_id} as asked by {asked}".encode())

    def _signed_result(self, folder: Path, job_id: str) -> bytes:
        """Return the result if it is what the supervisor signed, for the job that it was given."""
        data = (folder / "result.json").read_bytes()
        asked, _, signature = (folder / "result.hmac").read_bytes().partition(b" ")
        secret = self._secret(job_id, asked.decode(errors="replace"))
        expected = hmac.new(secret.encode(), asked + data, "sha256").hexdigest()
        if not hmac.compare_digest(expected.encode(), signature):
            raise InfrastructureError(
                f"the result of job {job_id} is not the one that its supervisor signed "
                "for what was asked",
                hint="run it again; find out who writes to the job folders",
            )
        return data

    def _artefacts(self, order: Order) -> Mapping[str, bytes]:
        """Return what an earlier build left; a graded check builds anew: caches can be altered."""
        built = self.cached_build(order) if order.purpose is Purpose.PRACTICE else None
        return built.artefacts if built else {}

    def _build_key(self, order: Order) -> Digest:
        if order.candidate is None:
            raise UsageError(f"{order.tool} needs a candidate", hint="call submit_candidate first")
        return self._cache_key(order.candidate, order.target, order.target_name)

    def _cache_key(self, candidate: Candidate, target: Target, name: str) -> Digest:
        return compile.cache_key(
            candidate,
            target=name,
            remote_digest=self.machines.host(target, name).remote_digest,
            compilers=self.machines.compilers(target, name, candidate.kernel.language),
        )

    def _threads(self, order: Order) -> int:
        return self.machines.threads(order.target, order.target_name)

    def _host_of(self, attempt: Attempt, files: CampaignFiles) -> Host:
        return self.machines.host(files.targets[attempt.target], attempt.target)

    def _work(self, order: Order) -> Work:
        if order.candidate is None:
            raise UsageError(f"{order.tool} needs a candidate", hint="call submit_candidate first")
        return Work(
            job_id=order.job_id,
            wall_s=order.files.campaign.budget.job_wall_s,
            candidate=order.candidate,
            contents=self._contents(order.candidate),
            limits=order.files.campaign.limits,
        )

    def _against(self, order: Order) -> Against:
        if order.contract is None:
            raise UsageError(f"{order.tool} needs a candidate", hint="call submit_candidate first")
        sealed = order.contract
        dims = resolve_dims(sealed.kernel, order.files.campaign.model.config)
        return Against(
            sealed=sealed,
            contents=self._contract_files(order, sealed),
            dims_fixed=dims.fixed,
            dims_max=dims.maxima,
        )

    def _serve_order(self, order: Order, *, arm: bool) -> serve.ServeOrder:
        candidate, sealed = needed(order)
        campaign, measures = order.files.campaign, measures_of(order)
        return serve.ServeOrder(
            job_id=order.job_id,
            wall_s=campaign.budget.job_wall_s,
            purpose=order.purpose,
            stages=measures.stages,
            candidate=candidate,
            contents=self._contents(candidate),
            sealed=sealed,
            contract_contents=self._contract_files(order, sealed),
            limits=campaign.limits,
            target=order.target,
            threads=self._threads(order),
            model_name=campaign.model.name,
            model_path=model_path(order),
            plans=plans_of(order),
            replicas=measures.replicas,
            restarts=measures.restarts,
            arm=arm,
            traffic=measures.traffic,
            bar=order.bar,
        )

    def _search_order(self, order: Order) -> search.SearchOrder:
        asked, sealed = searched(order)
        campaign = order.files.campaign
        rules = sealed.service.search
        return search.SearchOrder(
            job_id=order.job_id,
            wall_s=campaign.budget.job_wall_s,
            stage=asked.stage,
            sealed=sealed,
            contract_contents=self._contract_files(order, sealed),
            manifest=baseline_manifest(sealed),
            limits=campaign.limits,
            target=order.target,
            threads=self._threads(order),
            model_name=campaign.model.name,
            model_path=model_path(order),
            trials=trials_of(order),
            restarts=asked.restarts,
            traffic=rules.traffic if rules else (),
            until_s=asked.until_s,
        )

    def _deploy_order(self, order: Order) -> deploy.DeployOrder:
        candidate, _ = needed(order)
        campaign = order.files.campaign
        return deploy.DeployOrder(
            job_id=order.job_id,
            wall_s=campaign.budget.job_wall_s,
            candidate=candidate,
            contents=self._contents(candidate),
            limits=campaign.limits,
            target=order.target,
            threads=self._threads(order),
            model_name=campaign.model.name,
            model_path=model_path(order),
            plan=candidate_plan(candidate.engine).as_json(),
            replicas=order.replicas,
        )

    def _contract_files(self, order: Order, sealed: SealedContract) -> Mapping[str, bytes]:
        sealed_files = order.seal_files
        return {
            name: self._objects.get(sealed_files[f"{sealed.place}/{name}"]) for name in sealed.files
        }

    def _contents(self, candidate: Candidate | None) -> Mapping[str, bytes]:
        return {} if candidate is None else self._candidates.contents(candidate.digest)

    def _stored(self, folder: Path) -> dict[str, Digest]:
        if not folder.is_dir():
            return {}
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): self._objects.put_file(path) for path in files}

    async def _lease(
        self, attempt: Attempt, files: CampaignFiles, entry: Entry, state: JobState
    ) -> LeaseFacts | None:
        """Return what a job held of the GPUs; nothing if nothing of it ever ran."""
        if not state.began:
            return None
        asked_s = (datetime.now(UTC) - entry.at).total_seconds()
        most_s = len(files.targets[attempt.target].gpus) * max(0.0, asked_s)
        secret = partial(self._secret, attempt.job_id)
        return await account(self._host_of(attempt, files), attempt, secret, most_s=most_s)

    async def _log_tail(self, host: Host, job_id: str) -> str:
        try:
            return await host.log_tail(job_id, limit_bytes=LOG_TAIL_BYTES)
        except Unreachable:
            raise
        except (NotFound, InfrastructureError):
            return ""

    async def _machine(self, attempt: Attempt, files: CampaignFiles) -> Machine | None:
        try:
            return await self.machines.reach(files.targets[attempt.target], attempt.target)
        except Unreachable:
            raise
        except InfrastructureError:
            return None


def backend_of(kind: str) -> Backend:
    """Return the backend that produces this kind of evidence."""
    return next(backend for backend in BACKENDS if backend.kind == kind)


def _asked(request: JobRequest) -> Digest:
    """Return the name of what a job asks; its supervisor computes it from the job that it reads."""
    return digest_json(
        {
            "schema": 1,
            "job_id": request.job_id,
            "verb": request.verb,
            "wall_s": float(request.wall_s),
            "spec": request.spec,
        }
    )
