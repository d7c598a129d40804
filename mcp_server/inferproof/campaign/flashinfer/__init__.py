"""FlashInfer-Trace definitions and workloads as kernel contracts."""
