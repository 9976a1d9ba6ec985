import pytest

from models.architectures.gemm_list import gemm_list, read_gemm_list
from models.checks import UnknownNameError


def test_a_file_and_the_same_rows_in_a_request_are_equal(tmp_path):
    path = tmp_path / "gemms.csv"
    path.write_text("# from a profiler\nm,n,k,batch,count,format\n128,4096,4096,1,32,bf16\n1,64,128,8,2,fp8_e4m3\n")
    read = read_gemm_list(path)
    rows = [
        {"m": 128, "n": 4096, "k": 4096, "count": 32},
        {"m": 1, "n": 64, "k": 128, "batch": 8, "count": 2, "format": "fp8_e4m3"},
    ]
    given = gemm_list(rows)
    assert read.flop.tolist() == given.flop.tolist() == [2 * 128 * 4096 * 4096 * 32, 2 * 64 * 128 * 8 * 2]
    assert read.formats == given.formats == ("bf16", "fp8_e4m3")


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "gemms.csv"
    path.write_bytes(b"\xef\xbb\xbfm,n,k\r\n2,3,4\r\n")
    assert read_gemm_list(path).flop.tolist() == [48]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m,n,k\n1,2,3\n1,2,0\n", r"gemms\.csv line 3: column k must be between 1 and"),
        ("m,n,k\n1,2,-3\n", r"line 2: column k must be between 1"),
        ("m,n,k\n1,2,3.5\n", r"line 2: column k must be a whole number, got '3.5'"),
        ("m,n,k\n1,2,nan\n", r"line 2: column k must be a whole number, got 'nan'"),
        ("m,n,k\n1,2,99999999999999\n", r"line 2: column k must be between 1"),
        ("m,n,k\n1,2,\n", r"line 2: column k is missing"),
        ("m,n\n1,2\n", r"line 2: column k is missing"),
        ("m,n,k,depth\n1,2,3,4\n", r"line 2: unknown column 'depth', known: m, n, k, batch"),
        ("m,n,n\n1,2,3\n", r"line 1: a column is named twice"),
        ("m,n,k\n1,2\n", r"line 2 must have 3 cells as the header, got 2"),
        ("m,n,k\n", r"must have a header and at least one row"),
    ],
    ids=range(11),
)
def test_a_bad_file_is_named_by_line_and_column(tmp_path, text, message):
    path = tmp_path / "gemms.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_gemm_list(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "gemms must have at least one row"),
        ([3], r"gemms\[0\] must be an object with m, n and k, got 3"),
        ([{"m": 1, "n": 2, "k": 3}, {"m": 1, "n": 2}], r"gemms\[1\]: column k is missing"),
        ([{"m": 1, "n": 2, "k": True}], r"gemms\[0\]: column k must be a whole number, got True"),
        ([{"m": 1, "n": 2, "k": 2.0}], r"gemms\[0\]: column k must be a whole number, got 2.0"),
    ],
    ids=range(5),
)
def test_a_bad_request_is_named_by_row_and_key(rows, message):
    with pytest.raises(ValueError, match=message):
        gemm_list(rows)


def test_an_unknown_format_suggests_a_known_one():
    with pytest.raises(UnknownNameError, match=r"unknown format in gemms\[0\] 'bf61', did you mean 'bf16'"):
        gemm_list([{"m": 1, "n": 2, "k": 3, "format": "bf61"}])
