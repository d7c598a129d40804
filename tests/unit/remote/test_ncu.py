"""The profiler's CSV is read by the names of metrics, from real output of an H200."""

from pathlib import Path

import pytest

from inferproof_remote import ncu
from inferproof_remote.gpu_counters import KNOWN, counters_of

REAL = Path(__file__).parent / "ncu"


def text(name: str) -> str:
    return (REAL / f"{name}.csv").read_text()


def test_a_raw_page_gives_every_launch_in_base_units() -> None:
    launches = ncu.parse_raw(text("launch-bound"))
    assert [each.kernel for each in launches] == ["silu_and_mul"] * 3
    assert launches[0].metrics["launch__grid_size"] == 7
    assert 1_000 < launches[0].metrics["gpu__time_duration.sum"] < 10_000


def test_what_the_tool_says_before_the_table_is_passed_over() -> None:
    launches = ncu.parse_raw(text("saxpy-without-full-set"))
    assert [each.kernel for each in launches] == ["saxpy(int, float, const float *, float *)"] * 2
    assert launches[0].metrics["gpu__time_duration.sum"] == 230_624


def test_units_that_are_scaled_come_back_in_base_units() -> None:
    table = '"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum"\n'
    table += '"","","us","Mbyte"\n"0","k","1,234.5","2.5"\n'
    (found,) = ncu.parse_raw(table)
    assert found.metrics == {
        "ID": 0.0,
        "gpu__time_duration.sum": 1_234_500.0,
        "dram__bytes.sum": 2_500_000.0,
    }


@pytest.mark.parametrize("cell", ["", "nan", "n/a", "inf", "(256, 1, 1)", "PolicySpread"])
def test_a_cell_without_a_number_is_not_a_measurement(cell: str) -> None:
    table = f'"ID","Kernel Name","dram__bytes.sum"\n"","","byte"\n"0","k","{cell}"\n'
    (found,) = ncu.parse_raw(table)
    assert "dram__bytes.sum" not in found.metrics


@pytest.mark.parametrize("said", ["", "==ERROR== no", '"ID","Kernel Name"', '"ID","a"\n"",""\n"0"'])
def test_output_without_a_whole_row_gives_no_launches(said: str) -> None:
    assert ncu.parse_raw(said) == ()


def test_a_full_set_on_an_h200_has_every_counter() -> None:
    (launch,) = ncu.parse_raw(text("honest-rms-norm-fast"))
    counters = counters_of(launch)
    assert counters.not_found == ()
    assert set(counters.values) == set(KNOWN)
    assert 0.9 < sum(counters.stalls.values()) < 1


def test_a_smaller_set_says_which_counters_were_not_found() -> None:
    launch = ncu.parse_raw(text("saxpy-without-full-set"))[0]
    counters = counters_of(launch)
    assert {"dram_bytes", "global_sectors", "shared_wavefronts", "stalls"} <= set(
        counters.not_found
    )
    assert "dram_pct" not in counters.not_found


def test_names_of_blackwell_are_known() -> None:
    table = (
        '"ID","Kernel Name","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",'
        '"sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed",'
        '"dram__bytes_op_read.sum","dram__bytes_op_write.sum"\n'
        '"","","%","%","byte","byte"\n"0","gemm","69.2","81.6","100","20"\n'
    )
    (launch,) = ncu.parse_raw(table)
    counters = counters_of(launch)
    assert counters.values == {"tensor_pct": 81.6, "dram_bytes": 120.0}


def test_half_of_a_sum_is_not_a_sum() -> None:
    table = '"ID","Kernel Name","dram__bytes_read.sum"\n"","","byte"\n"0","k","100"\n'
    (launch,) = ncu.parse_raw(table)
    assert "dram_bytes" in counters_of(launch).not_found


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
            " Performance Counters on the target device 0.",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "another target"),
        ("==ERROR== Profiling is not supported on device 0.", "newer Nsight Compute"),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no"
            " other tool (like DCGM) is concurrently collecting profiling data.",
            "another profiler",
        ),
        ("==WARNING== No kernels were profiled.", "no kernel was found"),
    ],
)
def test_what_kept_the_profiler_from_counting_says_what_to_do(said: str, advice: str) -> None:
    assert advice in (ncu.trouble(f"noise\n{said}\n") or "")


def test_good_output_is_no_trouble() -> None:
    assert ncu.trouble(text("saxpy-without-full-set")) is None


def test_the_clocks_are_left_alone_and_the_report_is_kept(tmp_path: Path) -> None:
    command = ncu.counting(tmp_path / "ncu", tmp_path / "p.ncu-rep", ["python", "-c", "pass"])
    assert command[command.index("--clock-control") + 1] == "none"
    assert command[command.index("--profile-from-start") + 1] == "off"
    assert command[command.index("--export") + 1] == str(tmp_path / "p.ncu-rep")
    assert command[-3:] == ["python", "-c", "pass"]


def test_the_sandbox_sees_where_the_tool_lies_and_no_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nsight" / "ncu"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert ncu.find_ncu() == program
    assert program.parent in ncu.homes()
    assert all(place.is_dir() for place in ncu.homes())


def test_what_every_sandbox_sees_is_not_laid_over_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "find_ncu", lambda: Path("/usr/local/cuda/bin/ncu"))
    assert not any(place.is_relative_to("/usr") for place in ncu.homes())
