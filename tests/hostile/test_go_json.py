"""What Go says about JSON that it cannot read, for texts of any kind."""

from random import Random

import orjson
import pytest

from koordsched.api.gojson import message, syntax_error

END = "unexpected end of JSON input"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", END),
        (" \n", END),
        ("{", END),
        ("[1", END),
        ('{"a"', END),
        ('{"a":', END),
        ('"a', END),
        ('"\\', END),
        ("-", END),
        ("1.", END),
        ("1e+", END),
        ("tru", END),
        ("nope", "invalid character 'o' in literal null (expecting 'u')"),
        ("truE", "invalid character 'E' in literal true (expecting 'e')"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("'a'", "invalid character '\\'' looking for beginning of value"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        ("[[] 2]", "invalid character '2' after array element"),
        ("[{} }", "invalid character '}' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("01", "invalid character '1' after top-level value"),
        ('"\\q"', "invalid character 'q' in string escape code"),
        ('"\\u00g0"', "invalid character 'g' in \\u hexadecimal character escape"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("[" * 100_000, "exceeded max depth"),
        ('{"a":' * 100_000, "exceeded max depth"),
        ("[" * 9_000 + "]" * 9_000, ""),
        ("[" + "1," * 100_000 + "1]", ""),
        (' {"a" : [ 1 , -2.5e+3 , "b\\u00e9\\n" , { } , [ ] , null , true , false ] } ', ""),
    ],
)
def test_what_is_wrong_with_a_text(text, expected):
    assert syntax_error(text) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_text_is_wrong_if_it_is_no_json(seed):
    """Texts of JSON with a few characters changed, judged beside another reader."""
    rng, wrong = Random(seed), 0
    for _ in range(400):
        text = list('{"gpu":[{"minor":-1.5e3,"a":"b\\u00e9"},[],{}],"b":[true,false,null,0]} ')
        for _ in range(rng.randint(0, 2)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 2)] = rng.choice(
                ['"', "\\", "{", "}", "[", "]", ",", ":", "0", "e", ".", "-", " "]
            )
        try:
            orjson.loads("".join(text))
            valid = True
        except orjson.JSONDecodeError:
            valid = False
        assert (syntax_error("".join(text)) == "") == valid, "".join(text)
        wrong += not valid
    assert 50 < wrong < 400


def test_a_value_of_another_type():
    error = ValueError("Expected `object`, got `array` - at `$.a`")
    assert message("[]", error, "extension.X") == "json: cannot unmarshal array into Go value of type extension.X"
    assert message('{"a": []}', error, "extension.X") == str(error)
    assert message("[", error, "extension.X") == END
    assert message("[" * 5000 + "]" * 5000, error, "extension.X") == str(error)
