"""Write crates/prompt/tests/percent.json: templates with the operator `%`, and Jinja2's texts.

    python tools/reference/make_percent.py

Needs jinja2. Each line is a template and its text, or null where Jinja2 fails.
"""

import json
import random
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = Path(__file__).resolve().parents[2] / "crates" / "prompt" / "tests" / "percent.json"

VALUES = [
    "0", "5", "-7", "123456", "-123456789012", "true", "false", "none", "missing",
    "0.0", "1.5", "-2.5", "0.5", "1e20", "1e-7", "123456.789", "99999.95", "1e100", "-0.0",
    "'a'", "'é'", "'it\\'s'", "''", "'two words'", "[1, 'x']", "{'k': 2}", "(1, 2)", "(3,)", "()",
]  # fmt: skip
CONVERSIONS = "diuoxXeEfFgGcrsa%qb"
FLAGS = ["", "", "", "#", "0", "-", " ", "+", "0-", "+ ", "#0", "0 "]
WIDTHS = ["", "", "1", "4", "12", "*"]
PRECISIONS = ["", "", ".", ".0", ".2", ".10", ".*"]
LENGTHS = ["", "", "", "l", "hh"]

# Where operators stand, and what they bind.
PLACES = [
    "{{ '%s' % s }} % {# a % b #}{{ '%' }}{{ 7 % 4 }}",
    "{{ (('é%s' % s) % ()) }}",
    "{{ (('é%s%%' % n) % ()) }}",
    "{{ '%d%%' % (n) ~ '%s' % (n,) }}",
    "{{ 2 * 9 % 4 + 3 % (1 + 1) * 5 % 3 }}",
    "{{ 2 + 9 % 4 - 1 }} {{ 7 // 2 % 2 }} {{ 2 ** 3 % 5 }} {{ 17 % 2 ** 3 }}",
    "{{ 7 % -3 }} {{ (-7) % 3 }} {{ -7 % n }}",
    "{% set x = '%s' % n %}{% if n % 2 == 1 %}{{ x }}{% elif n % 3 %}b{% endif %}",
    "{% for i in range(7 % 4) %}{{ '%d,' % i }}{% endfor %}",
    "{% for i in range(6) if i % 2 %}{{ '%d,' % i }}{% else %}{{ 3 % 2 }}{% endfor %}",
    "{% macro m(a='%s' % 1) %}{{ a }}{{ caller() if caller }}{% endmacro %}{{ m() ~ m('%s' % 2) }}",
    "{% macro m(a) %}{{ a }}{{ caller() }}{% endmacro %}"
    "{% call m('%s' % 2) %}{{ 9 % 5 }}{% endcall %}",
    "{{ ['%s' % 1, {'k': '%s' % 2}['k']][n % 2] }}",
    "{{ {'a%d' % 1: 5 % 3} }}",
    "{{ ('%s' % n if n % 2 else 0)|length }}",
    "{{ '%s-%s' % (n % 3, '%s' % (n % 4)) }}",
    "{{ ('%s'|trim) % n }}{{ 'a' ~ '%s'|upper|lower % n }}",
    "{{ '%s' % s|upper }}{{ '%s' % s.upper() }}{{ '%s' % [s][0] }}",
    "{{- '%s' %n -}} {% raw %}{{ 1 % 2 }}{% endraw %}",
    "{{ 'abcdef'[n % 4:7 % 5 + 2] }}{{ 'abcdef'[7 % 4] }}",
    "{{ '%s' % (n is odd) }}{{ '%s' % n == '5' }}{{ not 4 % 2 }}",
    "{% set ns = namespace(x=0) %}{% set ns.x = 7 % 4 %}{{ ns.x }}",
    "{% set y %}{{ 7 % 4 }}{% endset %}{{ y }}{% filter upper %}{{ 'a%s' % 1 }}{% endfilter %}",
    "{{ '%(k)s %(k)05d %(a(b)c)s' % {'k': 2, 'a(b)c': 1} }}",
    "{{ '%(k)s' % {'x': 2} }}",
    "{{ '%(k)s' % n }}",
    "{{ '%(k)s %s' % {'k': 2} }}",
    "{{ '%' % () }}",
    "{{ '100%' % () }}",
    "{{ '%5' % 1 }}",
    "{{ '%(k' % {'k': 1} }}",
    "{{ '%s %s' % (1,) }}",
    "{{ '%s' % (1, 2) }}",
    "{{ 'none' % () }}|{{ 'none' % [] }}|{{ 'none' % {} }}|{{ 'none' % missing }}",
    "{{ 'none' % 1 }}",
    "{{ 'none' % '' }}",
    "{{ '%*d|%-*d' % (5, 3, 5, 3) }}",
    "{{ '%*d' % (-5, 3) }}|{{ '%.*f' % (-1, 3.25) }}",
    "{{ '%*d' % ('a', 3) }}",
    "{{ '%d' % '5' }}",
    "{{ '%c%c%c' % (97, 'b', 8364) }}",
    "{{ '%c' % 'ab' }}",
    "{{ '%s' % messages }}",
    "{{ '%s|%r' % (messages[0], messages[0].role) }}",
    "{{ '%5%|' % () }}",
    "{{ 1 % 0 }}",
    "{{ 1.5 % 0 }}",
    "{{ [] % 2 }}",
    "{{ 1 % 'a' }}",
    "{{ none % 'a' }}",
    "{{ missing % 2 }}",
    "{{ 'a' ~ 1e100 ~ 'b' ~ 1.5 ~ (1e-7) }}{{ 1e20 ~ 1 }}{{ 1e5 ~ 1E17 ~ n }}",
]


def render(environment, template):
    variables = {"n": 5, "s": "é%", "messages": [{"role": "user", "content": "it's %s"}]}
    try:
        return environment.from_string(template).render(variables)
    except Exception:
        return None


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    chance = random.Random(34)
    templates = list(PLACES)
    for _ in range(700):
        parts = [chance.choice(each) for each in (FLAGS, WIDTHS, PRECISIONS, LENGTHS, CONVERSIONS)]
        stars = sum("*" in part for part in parts)
        values = [chance.choice(["0", "3", "-9"]) for _ in range(stars)] + [chance.choice(VALUES)]
        right = values[0] if len(values) == 1 else f"({', '.join(values)})"
        templates.append(f"{{{{ 'a%{''.join(parts)}z' % {right} }}}}")
    for _ in range(120):
        left, right = (chance.choice(VALUES[:19]) for _ in range(2))
        templates.append(f"{{{{ ({left}) % ({right}) }}}}")
    lines = [json.dumps([text, render(environment, text)]) for text in dict.fromkeys(templates)]
    OUT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
