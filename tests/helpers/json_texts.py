"""JSON texts of every kind, valid and not, as strategies: written by a writer of our own, so that whitespace, escapes,
duplicate keys and number forms vary.

In: nothing. Out: bytes. Touches: nothing.
"""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = ["user", "id", "n", "ts", "a", "", "us\u00e9r", "user.id", "ID", "idx", "i"]
space = st.sampled_from(["", "", "", " ", "\n\t", "\r "])
numbers = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from(
        [
            "0", "-0", "-0.0", "0.5", "1e5", "1E+05", "-1.5e-3", "9223372036854775807", "9223372036854775808",
            "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
            "999999999999999999", "1000000000000000000", "1e99", "1e308", "1e309", "1e400", "1e-400", "1" * 200,
            "1" * 201, "1" * 400, "0.1" + "0" * 300, "123456789012345678901234567890", "1e0000001",
        ]
    ),
)  # fmt: skip
escapes = st.sampled_from(
    [
        "\\n",
        "\\\\",
        "\\/",
        '\\"',
        "\\u0041",
        "\\u00e9",
        "\\u0000",
        "\\ud83d\\ude00",
        "\\u001f",
        "\\b\\f\\r\\t",
        "\\uABcd",
    ]
)
characters = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=8), escapes
)
strings = st.one_of(
    st.lists(characters, max_size=3).map("".join),
    st.sampled_from(["12", "2013-01-01T00:00:00Z", "x" * 40, "\u00ff\u0800\uffff\U0010ffff"]),
)
names = st.one_of(st.sampled_from(NAMES), st.sampled_from(["us\\u0065r", "\\u0069d"]), strings)


def quoted(text: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """In quotes."""
    return text.map('"{}"'.format)


def padded(text: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """With whitespace around it."""
    return st.tuples(space, text, space).map("".join)


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Arrays of texts."""
    return st.lists(padded(inner), max_size=3).map(lambda parts: "[" + ",".join(parts) + "]")


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Objects of texts, keys may repeat."""
    pair = st.tuples(padded(quoted(names)), padded(inner)).map(":".join)
    return st.lists(pair, max_size=5).map(lambda parts: "{" + ",".join(parts) + "}")


scalars = st.one_of(st.sampled_from(["null", "true", "false"]), numbers, quoted(strings))
documents = st.recursive(scalars, lambda inner: st.one_of(arrays(inner), objects(inner), objects(inner)), max_leaves=12)
texts = padded(st.one_of(objects(documents), objects(documents), documents)).map(str.encode)


@st.composite
def broken_texts(draw: st.DrawFn) -> bytes:
    """Texts with a few bytes changed, taken out or put in."""
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        new = draw(st.one_of(st.sampled_from(list(b'"\\{}[]:,0-.eEtfn \x00\x1f\x7f')), st.integers(0, 255)))
        change = draw(st.integers(0, 2))
        if change == 0 and at < len(text):
            text[at] = new
        elif change == 1:
            text.insert(at, new)
        elif at < len(text):
            del text[at]
    return bytes(text)


BAD_UTF8 = [
    b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xc2\x7f", b"\xc2\xc0", b"\xe0\x80\x80", b"\xe0\x9f\xbf",
    b"\xe0\xa0", b"\xe1\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xef\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf",
    b"\xf1\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xfe", b"\xe1\x80\xc0", b"\xf1\x80\x80\x7f",
]  # fmt: skip
GOOD_UTF8 = [
    text.encode() for text in ("\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff")
]

PECULIAR = [
    b"[{},[1}]", b"[{},[1,2]]", b'{"a":{},"b":[1}}', b'[[1],{"a":1]]', b'[[],{"a":1}]', b'{"user":[],"id":{}}',
    b"", b" ", b"\xef\xbb\xbf{}", b"{", b"}", b"[", b"]", b"[]]", b"{}}", b"[1,]", b"[,1]", b"{,}", b'{"a"}',
    b'{"a":}', b'{"a":1,}', b'{"a" 1}', b'{a:1}', b"{'a':1}", b'{"a":1 "b":2}', b"[1 2]", b"[1}", b'{"a":1]', b"1 2",
    b"nul", b"nulll", b"null null", b"tru", b"trUe", b"fals", b"True", b"NaN", b"Infinity", b"-", b"+1", b"01",
    b"-01", b"00", b"1.", b".5", b"1.e5", b"1e", b"1e+", b"1ee5", b"1.5.5", b"0x10", b"1_000", b"--1", b'"', b'"a',
    b'"\\', b'"\\"', b'"\\x41"', b'"\\u12"', b'"\\u123g"', b'"\\ud800"', b'"\\udc00"', b'"\\ud800\\u0041"',
    b'"\\ud800\\ud800"', b'"\\udbff\\udfff"', b'"a\nb"', b'"a\x00b"', b'"\x7f"', b"\x0c1", b"1\x00", b"\xa01",
    b"/**/1", b"1//", b"[" * 1024 + b"]" * 1024, b"[" * 1025 + b"]" * 1025, b"[" * 60 + b"]" * 60,
    b"[" * 61 + b"]" * 61, b"[" * 70, b'{"a":' * 60 + b"1" + b"}" * 60, b'{"user":{"id":5}}',
    b'{"user":{"id":5},"user":6}', b'{"user":6,"user":{"id":5}}', b'{"user":{"id":5},"user":{}}',
    b'{"user":{"id":5,"id":null}}', b'{"user":[{"id":5}]}', b'{"x":{"user":{"id":5}}}', b'{"user":{"x":{"id":5}}}',
    b'{"user":{"user":{"id":5},"id":6}}', b'{"user.id":7}', b'[{"user":{"id":5}}]', b'{"user":{"id":{"id":5}}}',
    b'{"user":{"id":[1]}}', b'{"us\\u0065r":{"id":5}}', b'{"user":{"id":"a\\u0062"}}', b'{"user":{"id":5}}x',
    b'{"user":{"id":5},}', b'{"user":{"id":1}},{"user":{"id":2}}', b'{"id":1,"user":{"id":2},"id":3}',
    b'{"a":{"user":1},"user":{"id":9}}', b'{"user":{"a":[1,{"id":2}],"id":"z"}}', b'{"user":{"id":1e400}}',
    b'{"user":{"id":-0}}', b'{"user":{"id":-0.0}}', b'{"":{"":1}}', b'{"user":{"id":true}}', b'{"user":null}',
] + [b'{"user":{"id":"' + part + b'"}}' for part in (*BAD_UTF8, *GOOD_UTF8)] + [
    b'{"user":{"id":"' + part for part in (*BAD_UTF8, *GOOD_UTF8)
] + [b'{"' + part + b'":1}' for part in BAD_UTF8] + [part + b"1" for part in (*BAD_UTF8, *GOOD_UTF8)]  # fmt: skip
