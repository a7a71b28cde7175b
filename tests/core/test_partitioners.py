"""Partitioners: pinned tables, because a key that moves breaks the order of its messages."""

from __future__ import annotations

import pytest
from core_support import examples
from hypothesis import given
from hypothesis import strategies as st

from dmq_actors import InvalidArgumentError, InvalidTypeError
from dmq_actors._core.partitioners import (
    KEY_HASHES,
    check_partitioner,
    java_murmur2,
    key_bytes,
    murmur2,
    optional_key_bytes,
)


def signed(number):
    return number - (1 << 32) if number >= 1 << 31 else number


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_agrees_with_the_vectors_of_kafkas_own_tests(key, expected):
    assert signed(murmur2(key)) == expected
    assert java_murmur2(key) == expected & 0x7FFFFFFF
    assert KEY_HASHES["murmur2"](key) == expected & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", 0x00000000),
        (b"a", 0xE8B7BE43),
        (b"abc", 0x352441C2),
        (b"123456789", 0xCBF43926),
        (b"The quick brown fox jumps over the lazy dog", 0x414FA339),
    ],
)
def test_crc32_agrees_with_its_published_check_values(key, expected):
    assert KEY_HASHES["crc32"](key) == expected


@pytest.mark.parametrize(
    ("key", "by_crc32", "by_murmur2"),
    [
        ("", [0, 0, 0, 0], [0, 0, 1, 681]),
        ("a", [0, 0, 7, 907], [0, 1, 4, 524]),
        ("abc", [0, 0, 8, 578], [0, 0, 7, 107]),
        ("foobar", [0, 2, 9, 69], [0, 0, 6, 166]),
        ("123456789", [0, 2, 2, 262], [0, 0, 6, 566]),
        ("sensor-7", [0, 0, 0, 670], [0, 1, 6, 316]),
        ("user:42", [0, 1, 8, 558], [0, 1, 5, 325]),
        ("ü", [0, 1, 9, 789], [0, 2, 8, 458]),
    ],
)
def test_the_partition_of_a_key_is_pinned_for_1_3_10_and_1000_partitions(key, by_crc32, by_murmur2):
    for name, expected in (("crc32", by_crc32), ("murmur2", by_murmur2)):
        found = [KEY_HASHES[name](key.encode()) % count for count in (1, 3, 10, 1000)]
        assert found == expected


@examples(100)
@given(st.binary(max_size=40))
def test_crc32_is_the_textbook_algorithm_bit_by_bit(key):
    crc = 0xFFFFFFFF
    for byte in key:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    assert KEY_HASHES["crc32"](key) == crc ^ 0xFFFFFFFF


@examples(100)
@given(st.binary(max_size=40))
def test_murmur2_is_the_java_source_with_signed_arithmetic(key):
    def signed_byte(at):
        return key[at] - 256 if key[at] > 127 else key[at]

    def multiply(a, b):
        return signed(a * b & 0xFFFFFFFF)

    def unsigned_shift(a, by):
        return (a & 0xFFFFFFFF) >> by

    m = 0x5BD1E995
    h = signed((0x9747B28C ^ len(key)) & 0xFFFFFFFF)
    for i in range(len(key) // 4):
        k = sum((signed_byte(i * 4 + n) & 0xFF) << 8 * n for n in range(4))
        k = multiply(k, m)
        k ^= unsigned_shift(k, 24)
        k = multiply(k, m)
        h = multiply(h, m) ^ k
    rest = len(key) // 4 * 4
    match len(key) % 4:
        case 3:
            h ^= (signed_byte(rest + 2) & 0xFF) << 16
            h ^= (signed_byte(rest + 1) & 0xFF) << 8
            h = multiply(h ^ signed_byte(rest) & 0xFF, m)
        case 2:
            h ^= (signed_byte(rest + 1) & 0xFF) << 8
            h = multiply(h ^ signed_byte(rest) & 0xFF, m)
        case 1:
            h = multiply(h ^ signed_byte(rest) & 0xFF, m)
    h ^= unsigned_shift(h, 13)
    h = multiply(h, m)
    h ^= unsigned_shift(h, 15)
    assert signed(murmur2(key)) == signed(h & 0xFFFFFFFF)


@examples(100)
@given(st.binary(max_size=30), st.integers(1, 50))
def test_a_hash_is_a_whole_number_that_names_a_partition(key, count):
    for hash_key in KEY_HASHES.values():
        assert isinstance(hash_key(key), int)
        assert 0 <= hash_key(key) % count < count


@pytest.mark.parametrize("name", ["crc32", "murmur2"])
def test_a_known_hash_is_taken_by_name(name):
    assert check_partitioner(name) == name


def test_a_function_of_the_user_is_taken_as_it_is():
    def mine(_key, _count):
        return 0

    assert check_partitioner(mine) is mine


@pytest.mark.parametrize("wrong", ["md5", "", "CRC32", None, 3, b"crc32", ["crc32"]])
def test_an_unknown_partitioner_is_refused_with_the_names_of_the_known_ones(wrong):
    with pytest.raises(InvalidArgumentError, match=r"\['crc32', 'murmur2'\].*num_partitions"):
        check_partitioner(wrong)


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", b""), (b"", b""), ("abc", b"abc"), ("ü", b"\xc3\xbc"), (b"\xff\x00", b"\xff\x00")],
)
def test_text_stands_for_its_utf8_and_bytes_for_themselves(key, expected):
    assert key_bytes(key) == optional_key_bytes(key) == expected


def test_no_key_is_not_an_empty_key():
    assert optional_key_bytes(None) is None


@pytest.mark.parametrize("wrong", [5, 5.0, True, ("a",), bytearray(b"a"), memoryview(b"a")])
def test_a_key_of_another_type_is_refused_with_a_way_out(wrong):
    name = type(wrong).__name__
    with pytest.raises(InvalidTypeError, match=rf"str, bytes or None, found {name}; .*str\(key\)"):
        key_bytes(wrong)


def test_no_key_is_no_bytes():
    with pytest.raises(InvalidTypeError, match="NoneType"):
        key_bytes(None)


def test_text_without_a_utf8_form_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"surrogates not allowed.*bytes of the key"):
        key_bytes("a\ud800")
