"""Each function of the environment, by expressions that are true, and by upstream's errors."""

import pytest

from koordsched.plugins.dynamicresources.cel import CompileError, EvaluationError, compile
from koordsched.plugins.dynamicresources.cel.declarations import function, method
from koordsched.plugins.dynamicresources.cel.types import parse_types

from .selecting import device, selects

D = device()

TRUE = {
    "numbers": """
        7 / 2 == 3 && -7 / 2 == -3 && -7 % 3 == -1 && 7u / 2u == 3u && 7.0 / 2.0 == 3.5
        1 + 2 * 3 - 4 == 3 && -(3) == -3 && --3 == 3 && !!true
        0x1F == 31 && 1e3 == 1000.0 && .5 == 0.5 && 0xFFu == 255u
        dyn(1) == 1.0 && dyn(1u) == 1 && 2 > 1.5 && 1u < 2 && 1.5 <= 2u && -1 < 1u && 18446744073709551615u > 1
        1.0 / 0.0 == double('Infinity') && double('NaN') != double('NaN') && !(dyn(double('NaN')) == 1)
        dyn(9007199254740993) == 9007199254740992.0 && dyn(1) != true && dyn(1) != '1'
        2.5 - 1.0 == 1.5 && 3u - 1u == 2u && 2.5 * 2.0 == 5.0
    """,
    "conversions": """
        int('42') == 42 && int(3.9) == 3 && int(-3.9) == -3 && int(7u) == 7 && int('-0010') == -10
        uint('42') == 42u && uint(3.9) == 3u && uint(7) == 7u
        double('1.5') == 1.5 && double(2) == 2.0 && double('1e3') == 1000.0
        double('1_0.5_0e0_1') == 105.0 && double('0x1p4') == 16.0 && double('-0X_1_E.8P-1') == -15.25
        string(double('+inf')) == '+Inf' && string(double('-Infinity')) == '-Inf' && string(double('nan')) == 'NaN'
        string(1) == '1' && string(1.5) == '1.5' && string(1e6) == '1e+06' && string(true) == 'true'
        string(100000.0) == '100000' && string(0.0001) == '0.0001' && string(0.00001) == '1e-05' && string(5u) == '5'
        string(12000000.0) == '1.2e+07' && string(-0.000025) == '-2.5e-05' && string(-1.5) == '-1.5' && string(-0.0) == '-0'
        string(b'abc') == 'abc' && bytes('abc') == b'abc' && bytes('ÿ') == b'\\xc3\\xbf' && b'ÿ' == b'\\303\\277'
        bool('true') && !bool('F') && bool('1')
        type(1) == int && type('a') == string && type([]) == list && type(null) == null_type && type(int) == type
        dyn(1) == 1 && type(dyn('a')) == string
    """,  # noqa: E501
    "texts": """
        '\\u00e9\\x41\\101\\n'.size() == 4 && '\\ue000'.size() == 1 && r'\\n' == '\\\\n' && '''a'b''' == "a'b"
        'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo') && !'hello'.contains('z')
        size('héllo') == 5 && size(b'h\\303\\251') == 3 && 'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && 'a' < 'b'
        'tacocat'.charAt(3) == 'o' && 'tacocat'.charAt(7) == ''
        'tacocat'.indexOf('ac') == 1 && 'tacocat'.indexOf('a', 3) == 5 && 'tacocat'.indexOf('') == 0
        'tacocat'.lastIndexOf('a') == 5 && 'tacocat'.lastIndexOf('a', 3) == 1 && 'tacocat'.lastIndexOf('') == 7
        'TacoCat'.lowerAscii() == 'tacocat' && 'TacoCÆt'.upperAscii() == 'TACOCÆT'
        'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'
        'ab'.replace('', '_') == '_a_b_' && 'ab'.replace('', '_', 1) == '_ab' && 'ab'.replace('a', 'x', 0) == 'ab'
        'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'abc'.split('', 2) == ['a', 'bc']
        'a,b'.split(',', 0) == [] && 'a,b'.split(',', -1) == ['a', 'b'] && 'abc'.split('') == ['a', 'b', 'c']
        'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'tacocat'.substring(7) == ''
        '\\t a b \\n'.trim() == 'a b' && ['x', 'y'].join() == 'xy' && ['x', 'y'].join('-') == 'x-y' && [].join() == ''
        strings.quote('a"b\\n') == '"a\\\\"b\\\\n"'
    """,  # noqa: E501
    "format": """
        '%s and %s'.format(['a', 1]) == 'a and 1' && '100%%'.format([]) == '100%'
        '%d'.format([7u]) == '7' && '%.2f'.format([3.14159]) == '3.14' && '%f'.format([1.0]) == '1.000000'
        '%b %o %x %X'.format([5, 8, 255, 255]) == '101 10 ff FF' && '%x'.format(['Az']) == '417a' && '%b'.format([true]) == '1'
        '%e'.format([1052.033]) == '1.052033\\u202f×\\u202f10⁰³'
        '%s'.format([[1, 2.5, 'x', b'y', null, true]]) == '[1, 2.500000, "x", b"y", null, true]'
        '%s'.format([{'b': [1], 'a': duration('90s')}]) == '{"a":duration("90s"), "b":[1]}'
        '%s %s'.format([duration('1.5s'), timestamp('2020-01-02T03:04:05.600Z')]) == '1.5s 2020-01-02T03:04:05.6Z'
        '%f %f'.format(['NaN', '-Infinity']) == 'NaN -∞' && '%s'.format([int]) == 'int'
        '%f %e %f'.format([double('NaN'), double('Infinity'), -double('Infinity')]) == 'NaN ∞ -∞'
        '%s'.format([['\\u007f\\u0080\\uffff']]) == '["\\\\x7f\\\\u0080\\\\uffff"]'
    """,  # noqa: E501
    "patterns": """
        'a100-pcie'.matches('^a[0-9]+-') && matches('abc', 'b') && !'abc'.matches('^b')
        'abc 123 def 456'.find('[0-9]+') == '123' && 'abc'.find('[0-9]') == ''
        '123 abc 456'.findAll('[0-9]+') == ['123', '456'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2']
        'baaac'.findAll('a*') == ['', 'aaa', ''] && 'abc'.findAll('z') == [] && '12'.findAll('[0-9]', 0) == []
        'héllo'.find('é.') == 'él' && 'éa'.findAll('') == ['', '', ''] && 'éé'.findAll('é') == ['é', 'é'] && 'A'.matches('(?i)a')
    """,  # noqa: E501
    "collections": """
        1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1} && [1, 2][1] == 2 && {'a': 1}['a'] == 1 && {'a': 1}.a == 1
        dyn(1.0) in [1] && dyn(2u) in [1, 2] && {1: 'x'}[dyn(1u)] == 'x' && !(true in {1: 2}.map(k, dyn(k))) && {true: 1}[true] == 1
        {1: 'x'}[dyn(1.0)] == 'x' && [1, 2][dyn(1.0)] == 2 && [1, 2][dyn(1u)] == 2
        [1] + [2] == [1, 2] && size([1, 2]) == 2 && {'a': 1}.size() == 1 && dyn([[1]]) == [[1.0]] && {'a': [1]} == {'a': [1]}
        has({'a': 1}.a) && !has({'a': 1}.b) && [1, 2, ?optional.none()] == [1, 2] && {?'a': optional.of(1)} == {'a': 1}
        [1, 2, 3].all(x, x > 0) && [1, 2].exists(x, x == 2) && [1, 2, 2].exists_one(x, x == 1) && [1].existsOne(x, x == 1)
        [1, 2, 3].map(x, x * 2) == [2, 4, 6] && [1, 2, 3].filter(x, x > 1) == [2, 3] && [1, 2].map(x, x > 1, x) == [2]
        {'a': 1, 'b': 2}.map(k, k) == ['a', 'b'] && {'a': 1}.all(k, k == 'a') && [].all(x, false) && ![].exists(x, true)
        [3, 4].all(i, v, v == i + 3) && {'a': 1}.exists(k, v, k == 'a' && v == 1) && [5].existsOne(i, v, v == 5)
        [1, 2].transformList(i, v, i * v) == [0, 2] && [1, 2].transformList(i, v, i > 0, v) == [2]
        {'a': 1}.transformMap(k, v, v + 1) == {'a': 2} && {'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}
        ['x', 'y'].transformMap(i, v, v) == {0: 'x', 1: 'y'}
        {'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'} && {'a': 1}.transformMapEntry(k, v, v > 1, {v: k}) == {}
        cel.bind(x, 2, x * x) == 4 && cel.bind(x, 1, cel.bind(y, x + 1, x + y)) == 3 && cel.bind(x, 1 / 0, true)
        [1, 2].map(x, cel.bind(y, x + 1, y)) == [2, 3] && [1].map(x, [2].map(x, x)) == [[2]]
    """,  # noqa: E501
    "lists": """
        lists.range(3) == [0, 1, 2] && lists.range(-1) == [] && [1, 2, 3].slice(1, 3) == [2, 3] && [1, 2].reverse() == [2, 1]
        [[1], [2, 3]].flatten() == [1, 2, 3] && [[[1]], [[2]]].flatten(2) == [1, 2] && [[1]].flatten(0) == [[1]]
        [3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [1, 2, 1].distinct() == [1, 2]
        ['bb', 'a'].sortBy(x, x.size()) == ['a', 'bb'] && [1, 2].sortBy(x, -x) == [2, 1]
        [1, 2].isSorted() && ![2, 1].isSorted() && [1, 2].sum() == 3 && [1.5, 1.5].sum() == 3.0 && [1u].sum() == 1u
        [duration('1s'), duration('2s')].sum() == duration('3s') && [1, 3].max() == 3 && ['b', 'a'].min() == 'a'
        [1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(3) == -1
        [1, 2].first() == optional.of(1) && [1, 2].last().value() == 2 && ![1].slice(0, 0).first().hasValue()
        sets.contains([1, 2, 3], [1, 2]) && !sets.contains([1], [2]) && sets.equivalent([1, 1, 2], [2, 1])
        sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && sets.contains([1], [])
    """,  # noqa: E501
    "optionals": """
        optional.of(1).value() == 1 && optional.of(1).hasValue() && !optional.none().hasValue()
        {'a': 1}.?a.value() == 1 && !{'a': 1}.?b.hasValue() && {'a': 1}[?'a'].orValue(2) == 1 && [1][?5].orValue(2) == 2
        [7][?0].orValue(2) == 7 && {'a': [7]}.?a[0].orValue(2) == 7
        {'a': {'b': 1}}.?a.b.value() == 1 && !{'a': {'b': 1}}.?z.b.hasValue() && {'a': 1}.?b.or({'a': 1}.?a).value() == 1
        optional.of(1).optMap(x, x + 1).value() == 2 && !optional.none().optMap(x, x).hasValue()
        optional.of({'a': 1}).optFlatMap(m, m.?a).value() == 1 && optional.of(dyn(1)) == optional.of(1.0)
        !optional.ofNonZeroValue(0).hasValue() && !optional.ofNonZeroValue('').hasValue() && optional.ofNonZeroValue(1).hasValue()
        [dyn(false), dyn(0u), dyn(0.0), dyn(b''), dyn(null), dyn([]), dyn({}), dyn(duration('0s'))].all(x, !optional.ofNonZeroValue(x).hasValue())
        !optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue() && optional.ofNonZeroValue(timestamp(0)).hasValue()
        optional.ofNonZeroValue(optional.none()).hasValue() && optional.ofNonZeroValue(duration('1s')).hasValue()
        optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(2)].unwrapOpt() == [2]
        has(optional.of({'a': 1}).a) && optional.none() == optional.none() && optional.of(1) != optional.none()
    """,  # noqa: E501
    "quantities": """
        quantity('1.5G') == quantity('1500M') && quantity('1Ki').asInteger() == 1024 && quantity('100m').asApproximateFloat() == 0.1
        isQuantity('1.3Gi') && !isQuantity('200K') && !isQuantity('Three') && !isQuantity('') && isQuantity('1e3')
        quantity('50k').isInteger() && !quantity('1500m').isInteger() && !quantity('1.5Gi').isInteger()
        !quantity('9999999999999999999999999999999999999G').isInteger() && quantity('5G').isInteger()
        quantity('50k').add(quantity('20k')) == quantity('70k') && quantity('50k').add(20) == quantity('50020')
        quantity('50k').sub(quantity('20k')) == quantity('30k') && quantity('50k').sub(20000) == quantity('30k')
        quantity('200M').compareTo(quantity('0.2G')) == 0 && quantity('50M').compareTo(quantity('50Mi')) == -1
        quantity('150Mi').isGreaterThan(quantity('100Mi')) && quantity('50M').isLessThan(quantity('100M'))
        sign(quantity('-1')) == -1 && sign(quantity('0')) == 0 && sign(quantity('1n')) == 1 && quantity('0.1n') == quantity('1n')
        quantity('1').add(9223372036854775806).isInteger() && !quantity('2').add(9223372036854775806).isInteger()
    """,  # noqa: E501
    "versions": """
        semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3
        semver('v1.2', true) == semver('1.2.0') && semver('01.02.03', true) == semver('1.2.3') && isSemver('v1', true)
        isSemver('1.2.3-rc.1+b') && !isSemver('1.2') && !isSemver('v1.2.3') && !isSemver('1.2-a', true)
        semver('1.2.3-alpha').isLessThan(semver('1.2.3')) && semver('1.0.0-alpha.1').isLessThan(semver('1.0.0-alpha.beta'))
        semver('1.0.0-2').isLessThan(semver('1.0.0-10')) && semver('1.0.0-10').isLessThan(semver('1.0.0-a'))
        semver('1.2.3').compareTo(semver('1.2.3')) == 0 && semver('2.0.0').isGreaterThan(semver('1.9.9'))
    """,  # noqa: E501
    "networks": """
        ip('192.168.0.1').family() == 4 && ip('2001:db8::68').family() == 6 && string(ip('::1')) == '::1' && isIP('127.0.0.1')
        !isIP('127.0.0.256') && !isIP('fe80::1%en0') && !isIP('::ffff:1.2.3.4') && ip.isCanonical('::1') && !ip.isCanonical('0::1')
        ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip('8.8.8.8').isGlobalUnicast()
        ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast() && ip('169.254.1.1').isLinkLocalUnicast()
        cidr('10.0.0.0/8').containsIP('10.1.1.1') && cidr('10.0.0.0/8').containsIP(ip('10.1.1.1'))
        !cidr('10.0.0.0/8').containsIP('11.0.0.0') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')
        !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8')) && cidr('10.1.2.3/16').masked() == cidr('10.1.0.0/16')
        cidr('10.1.2.3/16').ip() == ip('10.1.2.3') && cidr('::1/128').prefixLength() == 128 && isCIDR('::/0') && !isCIDR('1.2.3.4')
        string(cidr('10.1.2.3/16')) == '10.1.2.3/16' && type(ip('::1')) == net.IP && type(cidr('::/0')) == net.CIDR
    """,  # noqa: E501
    "urls": """
        url('https://user@example.com:80/a%20b?x=1&y=2&x=3#f').getHost() == 'example.com:80' && isURL('/a') && !isURL('a')
        url('https://example.com:80/').getHostname() == 'example.com' && url('https://[::1]:80/').getHostname() == '::1'
        url('https://example.com:80/').getPort() == '80' && url('HTTPS://example.com').getScheme() == 'https'
        url('https://example.com/a%20b/c').getEscapedPath() == '/a%20b/c' && url('/a b').getEscapedPath() == '/a%20b'
        url('https://e.com/?x=1&y=2&x=3').getQuery() == {'x': ['1', '3'], 'y': ['2']} && !isURL('https://a:b/') && !isURL('')
        url('/a') == url('/a') && !isURL('../a') && !isURL('http://[::1/') && isURL('mailto:a@b')
    """,  # noqa: E501
    "formats": """
        !format.dns1123Label().validate('my-label').hasValue() && format.dns1123Label().validate('My').hasValue()
        format.dns1123Label().validate('a.b').value() == ['must not contain dots']
        !format.dns1123Subdomain().validate('a.b').hasValue() && !format.dns1035Label().validate('a1').hasValue()
        format.dns1035Label().validate('1a').hasValue() && !format.qualifiedName().validate('a.b/c').hasValue()
        !format.dns1123LabelPrefix().validate('abc-').hasValue() && format.dns1123Label().validate('abc-').hasValue()
        !format.dns1123SubdomainPrefix().validate('a.b-').hasValue() && !format.dns1035LabelPrefix().validate('a-').hasValue()
        format.dns1123LabelPrefix().validate('-').hasValue() && format.datetime().validate('2021-02-29T00:00:00Z').hasValue()
        !format.labelValue().validate('').hasValue() && format.labelValue().validate('a b').hasValue()
        !format.uri().validate('/a').hasValue() && format.uri().validate('').value() == ['parse "": empty url']
        !format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue() && format.uuid().validate('x').hasValue()
        !format.byte().validate('aGk=').hasValue() && format.byte().validate('a').value() == ['invalid base64']
        !format.date().validate('2020-02-29').hasValue() && format.date().validate('2021-02-29').hasValue()
        !format.datetime().validate('2020-01-01T00:00:00Z').hasValue() && format.datetime().validate('2020').hasValue()
        format.datetime().validate('2020-01-01').hasValue()
        format.named('dns1123Label').value() == format.dns1123Label() && !format.named('x').hasValue()
    """,  # noqa: E501
    "times": """
        duration('1h30m') == duration('5400s') && duration('-1.5s').getMilliseconds() == -1500 && duration('100us') < duration('1ms')
        duration('90m').getHours() == 1 && duration('90m').getMinutes() == 90 && duration('90s').getSeconds() == 90
        duration('1h') + duration('1s') == duration('3601s') && int(duration('1s')) == 1000000000
        -dyn(duration('1s')) == duration('-1s')
        timestamp('2020-01-02T03:04:05Z') + duration('1s') == timestamp('2020-01-02T03:04:06Z')
        timestamp('2020-01-02T03:04:05Z') - timestamp('2020-01-02T03:04:00Z') == duration('5s')
        timestamp('2020-01-02T03:04:05Z') < timestamp('2020-01-02T03:04:05.1Z') && int(timestamp('1970-01-01T00:01:00Z')) == 60
        timestamp('2020-01-02T03:04:05.678Z').getFullYear() == 2020 && timestamp('2020-01-02T03:04:05.678Z').getMonth() == 0
        timestamp('2020-03-01T00:00:00Z').getDayOfYear() == 60 && timestamp('2020-03-01T00:00:00Z').getDayOfMonth() == 0
        timestamp('2020-03-01T00:00:00Z').getDate() == 1 && timestamp('2020-03-01T00:00:00Z').getDayOfWeek() == 0
        timestamp('2020-01-02T03:04:05.678Z').getHours() == 3 && timestamp('2020-01-02T03:04:05Z').getMinutes() == 4
        timestamp('2020-01-02T03:04:05.678Z').getSeconds() == 5 && timestamp('2020-01-02T03:04:05.678Z').getMilliseconds() == 678
        timestamp('2020-01-02T03:04:05Z').getHours('America/New_York') == 22 && timestamp('2020-01-02T03:04:05Z').getHours('-02:30') == 0
        timestamp('2020-01-02T03:04:05+01:00') == timestamp('2020-01-02T02:04:05Z') && timestamp(0) == timestamp('1970-01-01T00:00:00Z')
        timestamp(-62135596800) == timestamp('0001-01-01T00:00:00Z') && timestamp(253402300799) == timestamp('9999-12-31T23:59:59Z')
        string(timestamp('2020-01-02T03:04:05.600Z')) == '2020-01-02T03:04:05.6Z' && string(duration('90m')) == '5400s'
    """,  # noqa: E501
}
LINES = [
    pytest.param(line.strip(), id=f"{name}-{index}")
    for name, lines in TRUE.items()
    for index, line in enumerate(lines.strip().splitlines())
]


@pytest.mark.parametrize("text", LINES)
def test_is_true(text):
    assert selects(text)


ERRORS = {
    "1 / 0 == 1": "division by zero",
    "1 % 0 == 1": "modulus by zero",
    "9223372036854775807 + device.driver.size() == 1": "integer overflow",
    "-9223372036854775808 - 1 == 1": "integer overflow",
    "-(-9223372036854775808) == 1": "integer overflow",
    "-9223372036854775808 / -1 == 1": "integer overflow",
    "9223372036854775807 * 2 == 1": "integer overflow",
    "0u - 1u == 1u": "unsigned integer overflow",
    "18446744073709551615u + 1u == 1u": "unsigned integer overflow",
    "[1][1] == 1": "index out of bounds: 1",
    "[1][-1] == 1": "index out of bounds: -1",
    "{'a': 1}['b'] == 1": "no such key: b",
    "{1: 1}[2] == 1": "no such key: 2",
    "dyn([1])['a'] == 1": "unsupported index type 'string' in list",
    "[1][dyn(1.5)] == 1": "unsupported index value 1.5 in list",
    "{1: 1}[dyn(1.5)] == 1": "no such key: 1.5",
    "double('NaN') < 1.0": "NaN values cannot be ordered",
    "optional.none().value() == 1": "optional.none() dereference",
    "'abc'.charAt(4) == ''": "index out of range: 4",
    "'abc'.indexOf('a', -1) == 1": "index out of range: -1",
    "'abc'.substring(2, 1) == ''": "invalid substring range. start: 2, end: 1",
    "'abc'.substring(4) == ''": "index out of range: 4",
    "[1].slice(0, 2) == []": "cannot slice(0, 2), list is length 1",
    "[1].slice(-1, 2) == []": "cannot slice(-1, 2), negative indexes not supported",
    "[1].slice(1, 0) == []": "cannot slice(1, 0), start index must be less than or equal to end index",
    "[[1]].flatten(-1) == []": "level must be non-negative",
    "[1].slice(0, 0).min() == 1": "min called on empty list",
    "[1, 1].transformMapEntry(i, v, {v: i}) == {}": "insert failed: key 1 already exists",
    "quantity('1,3G') == quantity('1')": "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",  # noqa: E501
    "quantity('200K') == quantity('1')": "unable to parse quantity's suffix",
    "quantity('Mi') == quantity('1')": "unable to parse numeric part of quantity",
    "quantity('1500m').asInteger() == 1": "cannot convert value to integer",
    "semver('1.2') == semver('1.2.0')": "No Major.Minor.Patch elements found",
    "semver('1.2-a', true) == semver('1.2.0')": "short version cannot contain PreRelease/Build meta data",
    "ip('a') == ip('::1')": 'IP Address "a" parse error during conversion from string: ParseAddr("a"): unable to parse IP',  # noqa: E501
    "ip('1.2.3') == ip('::1')": 'IP Address "1.2.3" parse error during conversion from string: ParseAddr("1.2.3"): IPv4 address too short',  # noqa: E501
    "ip('1:2:1.2.3.4') == ip('::1')": 'IP Address "1:2:1.2.3.4" parse error during conversion from string: ParseAddr("1:2:1.2.3.4"): embedded IPv4 address must replace the final 2 fields of the address (at "1.2.3.4")',  # noqa: E501
    "ip('::1.2.3.400') == ip('::1')": 'IP Address "::1.2.3.400" parse error during conversion from string: ParseAddr("::1.2.3.400"): IPv4 field has value >255',  # noqa: E501
    "ip('::ffff:1.2.3.4') == ip('::1')": 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed',
    "ip('fe80::1%a') == ip('::1')": 'IP address "fe80::1%a" with zone value is not allowed',
    "cidr('10.0.0.0') == cidr('::/0')": "network address parse error during conversion from string: network address parse error "  # noqa: E501
    "during conversion from string: netip.ParsePrefix(\"10.0.0.0\"): no '/'",
    "url('a') == url('/')": 'URL parse error during conversion from string: parse "a": invalid URI for request',
    "'x'.matches('(' + device.driver)": "error parsing regexp: missing closing ): `(drv`",
    "'x'.matches(device.driver + ')')": "error parsing regexp: unexpected ): `drv)`",
    "'x'.find('[' + device.driver) == ''": "Illegal regex: error parsing regexp: missing closing ]: `[drv`",
    "'%d'.format(['x' + device.driver].map(x, dyn(x))) == ''": "error during formatting: decimal clause can only be used on integers, was given string",  # noqa: E501
    "timestamp(0).getHours('Nowhere/City') == 1": "unknown time zone Nowhere/City",
    "string(b'\\xff' + b'') == ''": "invalid UTF-8 in bytes, cannot convert to string",
    "int(1e30 + 0.0) == 1": "integer overflow",
    "duration('1h') + timestamp('9999-12-31T23:59:59Z') == timestamp(0)": "timestamp overflow",
    "timestamp(-62135596800 - 1) == timestamp(0)": "timestamp overflow",
    "timestamp(253402300799 + 1) == timestamp(0)": "timestamp overflow",
    "semver('1.0.0') == dyn(1)": "no such overload",
    "-dyn('a') == 1": "no such overload",
    "-dyn(true) == 1": "no such overload",
    "-dyn([1]) == 1": "no such overload: -_",
    "dyn(semver('1.0.0')) + 1 == 1": "no such overload: _+_",
    "dyn('a') + 1 == 1": "no such overload",
    "dyn(1).size() == 1": "no such overload: size",
    "dyn(1).startsWith('a')": "no such overload",
    "dyn(1).matches('a')": "no such overload",
    "'a'.matches(dyn(1))": "no such overload",
    "quantity(dyn(1)) == quantity('1')": "no such overload: quantity(int)",
}


@pytest.mark.parametrize("text", ERRORS)
def test_error(text):
    with pytest.raises(EvaluationError) as caught:
        compile(text).evaluate(D)
    assert str(caught.value) == ERRORS[text]


COMPILE_ERRORS = {
    "int('x') == 1": "program instantiation failed: type conversion error from 'string' to 'int'",
    "double('1__0') == 1.0": "program instantiation failed: type conversion error from 'string' to 'double'",
    "double('+nan') == 1.0": "program instantiation failed: type conversion error from 'string' to 'double'",
    "double('0x1p1024') == 1.0": "program instantiation failed: type conversion error from 'string' to 'double'",
    "timestamp('x') == timestamp(0)": "invalid timestamp argument",
    "timestamp(-62135596801) == timestamp(0)": "invalid timestamp argument",
    "timestamp(253402300800) == timestamp(0)": "invalid timestamp argument",
    "duration('x') == duration('1s')": "invalid duration argument",
    "'a'.matches('(')": "invalid matches argument",
    "'a'.find('(') == ''": "program instantiation failed: error parsing regexp: missing closing ): `(`",
}


@pytest.mark.parametrize("text", COMPILE_ERRORS)
def test_constants_are_checked_when_compiled(text):
    with pytest.raises(CompileError) as caught:
        compile(text)
    assert COMPILE_ERRORS[text] in str(caught.value)


def test_types_as_declarations_write_them():
    found = parse_types("map(string, list(A)), optional(type(int)), dyn")
    assert [str(each) for each in found] == ["map(string, list(<A>))", "optional_type(type(int))", "dyn"]


@pytest.mark.parametrize(("declare", "member"), [(function, False), (method, True)])
def test_an_overload_as_it_is_declared(declare, member):
    found = declare("f", "f_list_int", "list(A), int", "A")
    assert (found.function, found.id, found.member) == ("f", "f_list_int", member)
    assert (*found.parameters, found.result) == parse_types("list(A), int, A")
