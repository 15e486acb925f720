"""Go's messages about JSON that it cannot read. Expected texts: what `encoding/json` of go1.24 says."""

import json
import random

import pytest

from koordsched.api import gojson

CASES = [
    ("", "unexpected end of JSON input"),
    ("{", "unexpected end of JSON input"),
    ('{"a":', "unexpected end of JSON input"),
    ('"abc', "unexpected end of JSON input"),
    ("nope", "invalid character 'o' in literal null (expecting 'u')"),
    ("nul", "unexpected end of JSON input"),
    ("tru3", "invalid character '3' in literal true (expecting 'e')"),
    ("not json", "invalid character 'o' in literal null (expecting 'u')"),
    ("x", "invalid character 'x' looking for beginning of value"),
    ("'a'", "invalid character '\\'' looking for beginning of value"),
    ("[1,]", "invalid character ']' looking for beginning of value"),
    ("[1 2]", "invalid character '2' after array element"),
    ('{"a" 1}', "invalid character '1' after object key"),
    ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
    ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
    ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
    ("{} {}", "invalid character '{' after top-level value"),
    ("01", "invalid character '1' after top-level value"),
    ("-x", "invalid character 'x' in numeric literal"),
    ("1.x", "invalid character 'x' after decimal point in numeric literal"),
    ("1ex", "invalid character 'x' in exponent of numeric literal"),
    ('"\\q"', "invalid character 'q' in string escape code"),
    ('"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
    ('"a\nb"', "invalid character '\\n' in string literal"),
    ('{"a": [1, {"b": null}], "c": -1.5e+3, "d": "\\u00e9"}', ""),
    (" \t\r\n[ ] ", ""),
]


@pytest.mark.parametrize("text, message", CASES)
def test_syntax_errors(text, message):
    assert gojson.syntax_error(text) == message


def test_what_python_reads_is_no_syntax_error_and_the_other_way_round():
    rng = random.Random(1)
    texts = [text for text, _ in CASES]
    for _ in range(3000):
        text = list(rng.choice(texts))
        for _ in range(rng.randint(0, 3)):
            at = rng.randint(0, len(text))
            text[at : at + rng.randint(0, 1)] = rng.choice(["", *'{}[]":,0123-.eEtfn\\u "'])
        mutated = "".join(text)
        try:
            json.loads(mutated)
            readable = True
        except ValueError:
            readable = False
        assert (gojson.syntax_error(mutated) == "") is readable, mutated


@pytest.mark.parametrize(
    "text, kind", [("[]", "array"), ('"x"', "string"), ("1", "number"), ("1.5", "number"), ("true", "bool")]
)
def test_a_value_of_another_type(text, kind):
    said = gojson.message(text, ValueError("unused"), "extension.DeviceAllocateHints")
    assert said == f"json: cannot unmarshal {kind} into Go value of type extension.DeviceAllocateHints"


def test_a_wrong_type_inside_is_said_in_our_words():
    assert gojson.message('{"gpu": 1}', ValueError("Expected `object`"), "t") == "Expected `object`"


def test_deep_nesting_ends():
    assert gojson.syntax_error("[" * 20_000) == "exceeded max depth"


DEEP = "[" * 9_000 + "]" * 9_000, '{"a":' * 9_000 + "1" + "}" * 9_000
LONG = "[" + "1," * 700_000 + "1]"


@pytest.mark.parametrize("text", [*DEEP, LONG], ids=range(3))
def test_what_go_reads_is_no_syntax_error(text):
    assert gojson.syntax_error(text) == ""
    said = "json: cannot unmarshal array into Go value of type t" if text is LONG else "unused"
    assert gojson.message(text, ValueError("unused"), "t") == said
