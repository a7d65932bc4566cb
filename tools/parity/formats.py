"""Captures which content format the engine detects in a template.

    PYTHONPATH=VLLM python tools/parity/formats.py --out FILE

Writes `NAME: {"template", "format"}` for small templates, each with one way to reach a message's
content, and `templates/NAME: {"format"}` for the templates beside the goldens. `openai` means that
content is a list of parts, `string` that the parts are joined. It is the engine's own function.
"""

import argparse
from pathlib import Path

from vllm.renderers.hf import _detect_content_format

import capture
from shapes import write_lines

LOOP = "{%% for m in messages %%}%s{%% endfor %%}"
BODY = "{{ c }}{% endfor %}"


def looped(inner):
    """A loop over the messages around this."""
    return LOOP % inner


def snippets():
    """Small templates by name."""
    over = {
        "attribute": "m.content",
        "subscript": "m['content']",
        "filter": "m.content | list",
        "two-filters": "m.content | list | reverse",
        "filter-arguments": "m.content | selectattr('type', 'equalto', 'text')",
        "slice": "m.content[1:]",
        "slice-and-filter": "(m.content | list)[:2]",
        "index": "m.content[0]",
        "other-attribute": "m.tool_calls",
        "other-subscript": "m['parts']",
        "default": "m.content | default([])",
        "call": "m.get('content')",
        "method": "m.content.items()",
        "or": "m.content or []",
        "ternary": "m.content if m.content is not string else []",
        "concatenation": "m.content + []",
        "name": "content",
        "other-name": "body",
        "parent": "messages[0].content",
        "deeper": "m.content.parts",
        "test": "(m.content is iterable)",
        "list": "[m.content]",
        "variable-key": "m[key]",
    }
    for name, iterated in over.items():
        yield f"over-{name}", looped("{% for c in " + iterated + " %}" + BODY)
    inner = "{% for c in m.content %}" + BODY
    for name, iterated in {
        "slice": "messages[1:]",
        "reverse-slice": "messages[::-1]",
        "filter": "messages | reverse",
        "filter-list": "messages | selectattr('role', 'eq', 'user') | list",
        "test": "(messages is iterable)",
        "condition": "messages if m.role == 'user'",
        "or": "messages or []",
        "concatenation": "messages + []",
        "range": "range(2)",
        "other": "history",
        "attribute": "ns.messages",
        "subscript": "ns['messages']",
        "index": "messages[0]",
        "recursive": "messages recursive",
    }.items():
        yield f"messages-{name}", "{% for m in " + iterated + " %}" + inner + "{% endfor %}"
    for name, before in {
        "alias": "{% set loop_messages = messages %}",
        "alias-slice": "{% set loop_messages = messages[1:] %}",
        "alias-filter": "{% set loop_messages = messages | list %}",
        "alias-of-alias": "{% set a = messages %}{% set loop_messages = a[1:] %}",
        "alias-of-itself": "{% set messages = messages %}{% set loop_messages = messages %}",
        "alias-in-branch": "{% if x %}{% set loop_messages = messages[1:] %}{% endif %}",
        "alias-ternary": "{% set loop_messages = messages if x else [] %}",
        "alias-later-name": "{% set loop_messages = later %}{% set later = messages %}",
        "alias-namespace": "{% set ns = namespace(m=messages) %}{% set loop_messages = ns.m %}",
        "alias-to-namespace": "{% set ns = namespace() %}{% set ns.loop_messages = messages %}",
        "alias-block": "{% set loop_messages %}{{ messages }}{% endset %}",
        "alias-tuple": "{% set a, loop_messages = messages %}",
        "alias-with": "{% with loop_messages = messages %}{% endwith %}",
    }.items():
        yield name, before + "{% for m in loop_messages %}" + inner + "{% endfor %}"
    yield "tuple-target", "{% for a, m in messages %}" + inner + "{% endfor %}"
    yield "tuple-target-part", looped("{% for a, c in m.content %}" + BODY)
    yield "single-message", "{% set m = messages[0] %}" + inner
    yield "name-at-top", "{% for c in content %}" + BODY
    yield "name-set", looped("{% set content = m.content %}{% for c in content %}" + BODY)
    yield "other-name-set", looped("{% set body = m.content %}{% for c in body %}" + BODY)
    yield "no-loop", looped("{{ m.content }}")
    yield "no-loop-join", looped("{{ m.content | map(attribute='text') | join }}")
    yield "syntax-error", looped("{% for c in m.content %}")
    macro = "{% macro show(value, mark='') %}{% for c in value %}" + BODY + "{% endmacro %}"
    named = macro.replace("value", "content")
    yield "macro-positional", macro + looped("{{ show(m.content) }}")
    yield "macro-keyword", macro + looped("{{ show(value=m.content) }}")
    yield "macro-second", macro + looped("{{ show('', m.content) }}")
    yield "macro-filter", macro + looped("{{ show(m.content | list) }}")
    yield "macro-other", macro + looped("{{ show(m.tool_calls) }}")
    yield "macro-not-called", macro + looped("{{ m.content }}")
    yield "macro-content-name", named + looped("{{ show(m.content) }}")
    yield "macro-content-name-other", named + looped("{{ show(m.tool_calls) }}")
    yield "macro-content-name-not-called", named + looped("{{ m.content }}")
    yield "macro-alias", macro + looped("{% set body = m.content %}{{ show(body) }}")
    yield "macro-of-message", (
        "{% macro show(m) %}{% for c in m.content %}" + BODY + "{% endmacro %}"
        + "{% for m in messages %}{{ show(m) }}{% endfor %}"
    )
    yield "macro-of-other-message", (
        "{% macro show(x) %}{% for c in x.content %}" + BODY + "{% endmacro %}"
        + "{% for m in messages %}{{ show(m) }}{% endfor %}"
    )
    yield "macro-filtered-loop", (
        macro.replace("in value", "in value | list") + looped("{{ show(m.content) }}")
    )
    yield "macro-slice-loop", (
        macro.replace("in value", "in value[1:]") + looped("{{ show(m.content) }}")
    )
    yield "macro-call-block", (
        "{% macro show(value) %}{{ caller() }}{% for c in value %}" + BODY + "{% endmacro %}"
        + looped("{% call show(m.content) %}x{% endcall %}")
    )
    yield "generation-tag", looped("{% generation %}{% for c in m.content %}" + BODY
                                   + "{% endgeneration %}")
    yield "inside-if", looped("{% if m.content is not string %}{% for c in m.content %}" + BODY
                              + "{% endif %}")
    yield "inside-raw", looped("{% raw %}{% for c in m.content %}{% endfor %}{% endraw %}")
    yield "inside-comment", looped("{# {% for c in m.content %}{% endfor %} #}")
    yield "other-loop-same-name", (
        "{% for m in tools %}{% for c in m.content %}" + BODY + "{% endfor %}"
        + looped("{{ m.content }}")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    found = {
        name: {"template": text, "format": _detect_content_format(text, default="string")}
        for name, text in snippets()
    }
    for name, text in capture.read_templates(capture.GOLDENS / "templates").items():
        found[f"templates/{name}"] = {"format": _detect_content_format(text, default="string")}
    write_lines(out, found)


if __name__ == "__main__":
    main()
