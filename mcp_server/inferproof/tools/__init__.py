"""One file per MCP tool; TOOLS is the list, in the order in which they are used."""

from inferproof.tools import (
    campaign_status,
    check_numerics,
    compile_kernel,
    deploy,
    evidence,
    job,
    job_cancel,
    profile,
    promote,
    run,
    run_aiperf,
    search_config,
    submit_candidate,
)
from inferproof.tools.spec import Tool

TOOLS: tuple[Tool, ...] = (
    campaign_status.TOOL,
    submit_candidate.TOOL,
    compile_kernel.TOOL,
    check_numerics.TOOL,
    profile.TOOL,
    deploy.TOOL,
    search_config.TOOL,
    run_aiperf.TOOL,
    promote.TOOL,
    run.TOOL,
    job.TOOL,
    job_cancel.TOOL,
    evidence.TOOL,
)
