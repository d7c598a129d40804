"""One file per way to produce evidence; each builds a job and reads its result."""

from inferproof.backends import command, compile, deploy, grade, search, serve, torch_profile
from inferproof.backends.base import Backend

BACKENDS: tuple[Backend, ...] = (
    compile.BACKEND,
    grade.BACKEND,
    torch_profile.BACKEND,
    command.BACKEND,
    serve.BACKEND,
    deploy.BACKEND,
    search.BACKEND,
)
