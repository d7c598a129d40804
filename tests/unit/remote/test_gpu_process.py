"""A process that holds a device, as the grader meets it: its end has a reason, and is no hang."""

import pytest

from inferproof_remote.gpu_process import DeviceProcess
from inferproof_remote.line import Ended


def test_a_process_that_cannot_start_ends_with_what_it_said_last() -> None:
    with DeviceProcess("no_such_module", shared_bytes=1 << 12) as process:
        process.start_trusted(env={})
        with pytest.raises(Ended) as ended:
            process.collect(30.0)
    assert ended.value.code == "crashed"
    assert "no_such_module" in ended.value.detail
