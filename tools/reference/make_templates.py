"""Write crates/prompt/tests/templates.json: chat templates and what they must render to.

The templates are written here, in the styles found in published models; the
expected text (or error message) comes from transformers' own Jinja environment.
What `kwargs` holds is passed to the template, except `date` (YYYY-MM-DD), which
is the day that `strftime_now` reports. As in transformers, `tools` and
`documents` are always defined, and null unless given; a missing bos_token or
eos_token is undefined.

Run from the repository root, with tools/reference/requirements.txt installed:

    python tools/reference/make_templates.py
"""

import datetime
import json
from pathlib import Path
from unittest import mock

from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "crates" / "prompt" / "tests" / "templates.json"
TOY = json.loads((ROOT / "data" / "toy-tokenizer" / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]

LLAMA3 = """\
{#- Header blocks; the date and the tools go into the system block. #}
{%- macro block(role, text) %}
    {{- '<|start_header_id|>' ~ role ~ '<|end_header_id|>\\n\\n' ~ text | trim ~ '<|eot_id|>' }}
{%- endmacro %}
{%- set today = date_string if date_string is defined else strftime_now('%A %d %b %Y, %j') %}
{%- set system = '' %}
{%- set turns = messages %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'].strip() + '\\n' %}
    {%- set turns = messages[1:] %}
{%- endif %}
{{- bos_token }}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' + system + 'It is ' + today + '.' }}
{%- if tools is defined and tools is not none %}
    {{- '\\nReply with a call of one of:' }}
    {%- for tool in tools %}
        {{- '\\n' + tool.function.name + ' ' + tool.function.parameters | tojson(indent=4) }}
    {%- endfor %}
{%- endif %}
{{- '<|eot_id|>' }}
{%- for turn in turns %}
    {%- set calls = turn['tool_calls'] if 'tool_calls' in turn else [] %}
    {%- if calls | length > 1 %}
        {{- raise_exception('At most one call in a turn, got ' ~ calls | length) }}
    {%- elif calls %}
        {%- set wanted = calls[0]['function'] %}
        {{- block('assistant', dict(call=wanted.name, with=wanted.arguments) | tojson) }}
    {%- elif turn.role == 'tool' %}
        {{- block('ipython', turn.content if turn.content is string else turn.content | tojson) }}
    {%- else %}
        {{- block(turn.role, turn.content) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

CHATML_TOOLS = """\
{%- macro open(role) %}{{ '<|im_start|>' ~ role }}
{% endmacro %}
{%- set ns = namespace(asked=-1, system='') %}
{%- for message in messages %}
    {%- if message.role == 'user' and not message.content.startswith('<result>') %}
        {%- set ns.asked = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages[::-1] if message.role == 'system' %}
    {%- if loop.last %}{% set ns.system = message.content %}{% endif %}
{%- endfor %}
{%- if ns.system or tools %}
    {{- open('system') + ns.system }}
    {%- if tools %}
        {{- '\\n\\n<functions>' if ns.system else '<functions>' }}
        {%- for tool in tools %}
            {{- '\\n' ~ tool | tojson }}
        {%- endfor %}
        {{- '\\n</functions>' }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {%- set at = loop.index0 + messages | length - loop.length %}
    {%- if message.role == 'tool' %}
        {{- open('user') if loop.first or loop.previtem.role != 'tool' else '\\n' }}
        {{- '<result>' + message.content + '</result>' }}
        {{- '<|im_end|>\\n' if loop.last or loop.nextitem.role != 'tool' }}
    {%- else %}
        {%- set text = message.content or '' %}
        {%- set thought = message.reasoning_content | default('', true) %}
        {%- if not thought and '</think>' in text %}
            {%- set thought = text.split('</think>')[0].split('<think>') | last %}
            {%- set text = text.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- open(message.role) }}
        {%- if thought and at > ns.asked %}
            {{- '<think>\\n' ~ thought.strip('\\n') ~ '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- text }}
        {%- for item in message.tool_calls or [] %}
            {%- set item = item.function if item.function is defined else item %}
            {%- set given = item.arguments %}
            {{- ('' if loop.first and not text else '\\n') ~ '<call>' ~ item.name ~ ' ' }}
            {{- given if given is string else given | tojson }}
            {{- '</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- open('assistant') }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

INST = """\
{{- bos_token -}}
{%- set first = messages[0] -%}
{%- set preface = first['content'].rstrip() ~ '\\n\\n' if first['role'] == 'system' else '' -%}
{%- set rest = messages[1:] if preface else messages -%}
{%- set asked = rest | selectattr('role', 'equalto', 'user') | list -%}
{%- set others = rest | rejectattr('role', 'in', ['user', 'assistant']) | map(attribute='role') | list -%}
{%- if others -%}
    {{- raise_exception('Unsupported roles: ' ~ others | join(', ')) -}}
{%- endif -%}
{%- for message in rest -%}
    {%- if message['role'] != ['user', 'assistant'][loop.index0 % 2] -%}
        {{- raise_exception('Roles must alternate, user first: turn ' ~ loop.index) -}}
    {%- endif -%}
    {%- if loop.index0 is even -%}
        {{ '[INST] ' + (preface if message == asked | last else '') + message['content'] + ' [/INST]' }}
    {%- else -%}
        {{ ' ' ~ message['content'] | trim ~ eos_token }}
    {%- endif -%}
{%- endfor -%}
{%- if asked | length > 2 %} ({{ asked | length }} questions){% endif -%}
"""

# No minus signs: newlines and indentation are left to trim_blocks and lstrip_blocks.
BLOCKS = """\
{# trim_blocks eats the newline after this comment #}
<begin>
{% for message in messages %}
  {% if message.role == 'user' %}
    <user>{{ message.content }}</user>
  {% elif message.role == 'assistant' %}
    {% generation %}
<bot>{{ message.content }}</bot>
    {% endgeneration %}
  {%+ else %}
    <other {{ loop.index }}/{{ loop.length }}>
  {% endif %}
{% endfor %}
  {% if add_generation_prompt %}  <bot>{% endif %}

end
"""

SCAN = """\
{%- set ns = namespace(system='', turns=0, seen=[]) -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = ns.system ~ ('\\n' if ns.system else '') ~ message.content.strip() -%}
        {%- continue -%}
    {%- endif -%}
    {%- if message.content is string and message.content.strip() == '/stop' -%}
        {%- break -%}
    {%- endif -%}
    {%- set ns.turns = ns.turns + 1 -%}
    {%- set ns.seen = ns.seen + [message.role] -%}
{%- endfor -%}
{{ bos_token }}{% if ns.system %}<<SYS>>{{ ns.system }}<</SYS>>
{% endif %}
{%- for role in ns.seen -%}
    {{ role | upper }}{{ ', ' if not loop.last }}
{%- endfor %} ({{ ns.turns }} {{ 'turn' if ns.turns == 1 else 'turns' }})
{%- for message in messages if message.role != 'system' %}
{{ loop.index }}/{{ loop.length }} {{ message.role.title() }}:
{%- if loop.previtem is defined and loop.previtem.role == message.role %} (again){% endif %}
 {{ message['content'].replace('\\t', ' ').split() | join(' ') }}
{%- endfor %}
{{- '\\nAssistant:' if add_generation_prompt else eos_token }}"""

PARTS = """\
{%- macro render(content) -%}
    {%- if content is string -%}
        {{- content | trim -}}
    {%- elif content is iterable -%}
        {%- for part in content -%}
            {%- if part.type == 'text' -%}
                {{- part['text'] -}}
            {%- elif part.type == 'image' -%}
                {{- '<image>' -}}
            {%- else -%}
                {{- raise_exception('Unknown part: ' ~ part.type) -}}
            {%- endif -%}
        {%- endfor -%}
    {%- elif content is none -%}
        {{- '(empty)' -}}
    {%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- for message in messages -%}
    {%- set role = 'model' if message.role == 'assistant' else message.role -%}
    {{- '<start_of_turn>' ~ role ~ '\\n' ~ render(message.content) ~ '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\\n' -}}
{%- endif -%}
"""

TYPED_TOOLS = """\
{%- macro kind(spec) -%}
    {%- if spec.enum is defined and spec.enum -%}
        {{- spec.enum | map('tojson') | join(' | ') -}}
    {%- elif spec.type == 'array' -%}
        {{- kind(spec['items']) ~ '[]' -}}
    {%- elif spec.type is string -%}
        {{- {'integer': 'number', 'string': 'string'}.get(spec.type, spec.type) -}}
    {%- else -%}
        {{- 'any' -}}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] %}
{%- set function = tool['function'] %}
// {{ function.description | default('undocumented', true) }}
type {{ function.name }} = (_: {
{%- for name, spec in function.parameters.properties.items() %}
    {{- '\\n  ' ~ name }}{{ '' if name in (function.parameters.required or []) else '?' }}: {{ kind(spec) }}
{%- if spec.default is defined %}, // default: {{ spec.default | tojson }}{% endif %}
{%- endfor %}
}) => any;

{% endfor %}
{%- for message in messages %}
<|{{ message.role }}|>{{ message.get('name', '') }}
{{ message.content }}
{%- if message.extra is defined %}
    {{- '\\n' ~ message.extra | tojson }}

{{ message.extra | tojson(indent=2) }}
{% endif %}
{%- endfor %}
{%- if messages and messages[-1].role != 'assistant' and add_generation_prompt %}

<|assistant|>
{%- endif %}"""

LEGACY = (
    "{% if not stop is defined %}{% set stop = '<|end|>' %}{% endif %}"
    "{% set users = 0 if messages[0]['role'] == 'user' else 1 %}"
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if loop.index0 % 2 == users and message['role'] != 'user' %}"
    "{{ raise_exception('Expected a user turn') }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + '\n' + message['content'].strip() + stop + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' + '\n' }}{% else %}{{ eos_token }}{% endif %}\n"
)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city, e.g. \"Zürich\" <b>& others</b> 'now'",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["°C", "°F"], "default": "°C"},
                "days": {"type": "integer", "default": 1},
            },
            "required": ["city"],
        },
    },
}
SUM = {
    "type": "function",
    "function": {
        "name": "sum",
        "parameters": {
            "type": "object",
            "properties": {"values": {"type": "array", "items": {"type": "number"}}, "note": {}},
        },
    },
}

ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool", "x": "critic"}
VALUES = {"z": 1, "a": [1.0, 0.1, -2.5], "empty": {}, "none": [], "flags": [True, False, None], "s": "\"\\/\n\u2028é🎉\x01"}
FLOATS = {"small": [1e-4, 1e-5, -2.5e-7], "large": [1e15, 1e16, 1.5e22], "integers": [0, -1, 2**53 + 1]}


def chat(*turns):
    """Messages from "u: text" shorthand; a dict stands for itself."""
    return [t if isinstance(t, dict) else {"role": ROLES[t[0]], "content": t[3:]} for t in turns]


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


PLAIN = chat("s:  Be brief. \n", "u: Hi there\n", "a:  Hello! ", "u: <b>Why & how?</b> 你好 🎉")
TOOL_CHAT = chat(
    "s: Use tools.",
    "u: Weather in Zürich and Bern?",
    {
        "role": "assistant",
        "content": "Looking.",
        "tool_calls": [call("get_weather", {"city": "Zürich", "days": 2}), call("get_weather", '{"city": "Bern"}')],
    },
    "t: 21 °C",
    "t: 19 °C",
)
ONE_CALL = chat(
    "u: Weather in Zürich?",
    {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "Zürich", "unit": None})]},
    {"role": "tool", "content": {"temperature": 21.5, "sky": "<clear>"}},
)
THINKING = chat(
    "u: One?", "a: <think>\nfirst\n</think>\n\nOne.", "u: Two?", {"role": "assistant", "content": "\nTwo.", "reasoning_content": "\nsecond\n"}
)
PARTED = chat(
    "s:  Look.  ",
    {"role": "user", "content": [{"type": "text", "text": " What is "}, {"type": "image"}, {"type": "text", "text": "this? "}]},
    {"role": "assistant", "content": None},
)
EXTRA = chat({"role": "user", "name": "ann", "content": "values", "extra": VALUES})
NUMBERS = chat({"role": "user", "content": "Python's spelling of floats", "extra": FLOATS})

B = {"bos_token": "<s>", "eos_token": "</s>"}
GO = B | {"add_generation_prompt": True}
STOP = B | {"add_generation_prompt": False}
DAY = {"date": "2025-03-07"}

# (name, template, messages, kwargs)
CASES = [
    ("llama3/plain", LLAMA3, PLAIN, GO | DAY),
    ("llama3/no-system", LLAMA3, PLAIN[1:], STOP | DAY),
    ("llama3/tools", LLAMA3, ONE_CALL, GO | DAY | {"tools": [WEATHER]}),
    ("llama3/no-bos", LLAMA3, PLAIN, {"add_generation_prompt": True} | DAY),
    ("llama3/date-string", LLAMA3, PLAIN[1:2], STOP | {"date_string": "1 May"}),
    ("llama3/two-calls", LLAMA3, TOOL_CHAT, GO | DAY),
    ("chatml/plain", CHATML_TOOLS, PLAIN, GO),
    ("chatml/tools", CHATML_TOOLS, TOOL_CHAT, GO | {"tools": [WEATHER, SUM]}),
    ("chatml/empty-tools", CHATML_TOOLS, PLAIN, STOP | {"tools": []}),
    ("chatml/thinking", CHATML_TOOLS, THINKING, STOP),
    ("chatml/thinking-past", CHATML_TOOLS, THINKING + chat("u: Three?"), GO),
    ("chatml/no-thinking", CHATML_TOOLS, PLAIN, GO | {"enable_thinking": False}),
    ("inst/plain", INST, PLAIN, GO),
    ("inst/long", INST, PLAIN + chat("a: So.", "u: And?"), STOP),
    ("inst/alternation", INST, chat("u: a", "u: b"), GO),
    ("inst/starts-with-assistant", INST, chat("a: a"), GO),
    ("inst/unknown-role", INST, chat("u: a", "x: b"), GO),
    ("blocks/plain", BLOCKS, PLAIN, GO),
    ("blocks/no-prompt", BLOCKS, PLAIN[1:3], STOP),
    ("scan/plain", SCAN, PLAIN, GO),
    ("scan/stop", SCAN, chat("s: a ", "u: x\ty", "u:  z  z", "s:  b", "u:  /stop ", "a: w"), STOP),
    ("scan/one", SCAN, chat("u: only"), GO),
    ("parts/mixed", PARTS, PARTED, GO),
    ("parts/unknown", PARTS, chat({"role": "user", "content": [{"type": "audio"}]}), GO),
    ("typed-tools/tools", TYPED_TOOLS, TOOL_CHAT[:2], GO | {"tools": [WEATHER, SUM]}),
    ("typed-tools/values", TYPED_TOOLS, EXTRA, GO),
    ("typed-tools/floats", TYPED_TOOLS, NUMBERS, GO),
    ("typed-tools/no-messages", TYPED_TOOLS, [], GO),
    ("legacy/plain", LEGACY, PLAIN, GO),
    ("legacy/eos", LEGACY, PLAIN[1:], STOP),
    ("legacy/alternation", LEGACY, chat("s: a", "a: b"), GO),
    ("toy/plain", TOY, PLAIN, GO),
    ("toy/tools", TOY, PLAIN, STOP | {"tools": [WEATHER, SUM]}),
    ("toy/tools-no-system", TOY, PLAIN[1:2] + chat("t: 21 °C"), GO | {"tools": [SUM]}),
    ("toy/unknown-role", TOY, chat("x: a"), GO),
]


def render(template, messages, kwargs):
    """What transformers renders: {"expected": text} or {"error": message}."""
    kwargs = dict(kwargs)
    day = datetime.datetime.fromisoformat(kwargs.pop("date", "2000-01-01"))
    with mock.patch.object(chat_template_utils, "datetime") as clock:
        clock.now.return_value = day
        try:
            texts, _ = chat_template_utils.render_jinja_template([messages], chat_template=template, **kwargs)
        except TemplateError as error:
            return {"error": str(error)}
    return {"expected": texts[0]}


def main():
    cases = [
        {"name": name, "template": template, "messages": messages, "kwargs": kwargs} | render(template, messages, kwargs)
        for name, template, messages, kwargs in CASES
    ]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    OUT.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    errors = sum("error" in case for case in cases)
    print(f"{OUT.name}: {len(cases)} cases, {errors} of them errors, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
