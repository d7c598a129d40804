"""Kinds of machine code in a listing as nvdisasm prints it."""

from inferproof_remote.cuda_sass import parse_sass

LISTING = """
	.section	.text.matmul,"ax",@progbits
        .global         matmul
matmul:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 LDG.E.128.CONSTANT R4, desc[UR6][R2.64] ;
        /*0020*/              @!P1 LDG.E.U16 R8, desc[UR6][R2.64] ;
        /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R12, RZ ;
        /*0040*/                   HFMA2.MMA R8, -RZ, RZ, 0, 0 ;
        /*0050*/                   STL.64 [R1], R2 ;
        /*0060*/                   LDL.64 R2, [R1] ;
        /*0070*/              @!UP0 UTMALDG.2D [UR8], [UR4] ;
        /*0080*/                   STG.E.64 desc[UR6][R2.64], R4 ;
	.section	.text.copy,"ax",@progbits
        /*0000*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0010*/                   UTCQMMA gdesc[UR4], gdesc[UR6], tmem[UR8] ;
        /*0020*/                   EXIT ;
"""


def test_each_kernel_has_its_own_counts() -> None:
    code = parse_sass(LISTING)
    assert {name: each.instructions for name, each in code.items()} == {"matmul": 9, "copy": 3}


def test_matrix_instructions_are_told_by_name_and_from_others() -> None:
    code = parse_sass(LISTING)
    assert code["matmul"].tensor == {"HMMA.16816.F32.BF16": 1}
    assert code["copy"].tensor == {"HGMMA.64x64x16.F32.BF16": 1, "UTCQMMA": 1}


def test_widths_spills_and_bulk_copies_are_counted() -> None:
    matmul = parse_sass(LISTING)["matmul"]
    assert (matmul.loads, matmul.stores) == ({"128": 1, "32": 1}, {"64": 1})
    assert (matmul.local, matmul.bulk) == (2, 1)


def test_a_listing_without_code_has_no_kernels() -> None:
    assert parse_sass("nvdisasm fatal : no") == {}
