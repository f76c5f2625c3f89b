"""Writes tests/golden/tokenizer_chat/cases.json: the .jinja templates of that folder and many small ones, rendered by
transformers' own environment.

Usage: python make_chat_golden.py FOLDER      (needs transformers and jinja2)
The templates are our own, with the constructs and text marks of the models they are named after; smollm2.jinja is that of
SmolLM2-135M-Instruct (Apache-2.0).
"""

import json
import pathlib
import sys

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

USER = [{"role": "user", "content": " What is 2+2? \n"}]
CHATS = {
    "user": USER,
    "system": [{"role": "system", "content": "Be brief.\n"}] + USER,
    "turns": [{"role": "system", "content": "  You know <b>all</b>.  "}, {"role": "user", "content": "Hi \u00e9\U0001F600"},
              {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello! "}, {"role": "user", "content": "Bye\n\nnow"},
              {"role": "assistant", "content": "\nok {{ x }} {% y %}"}, {"role": "user", "content": ""}],
    "answered": USER + [{"role": "assistant", "content": "<think>sum</think>4"}],
    "wrong order": [{"role": "assistant", "content": "I start."}] + USER,
    "two users": USER + USER,
    "odd role": [{"role": "critic", "content": "x"}],
    "empty": [],
}
# Small templates, each for a construct; the variables are below.
SNIPPETS = r"""
{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 1.5 + 1 }} {{ 10 / 5 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }} {{ "x" + 'y' }} {{ 'ab' * 3 }} {{ [1] + [2, 'x'] }}
{{ 1 if true else 2 }} {{ 'no' if false }} {{ (1, 2) | length }} {{ 'a' 'b' "c" }}
{{ 1 < 2 <= 2 < 3 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ [1, 2] == [1, 2] }} {{ 'a' != 'b' }} {{ true == 1 }}
{{ 'a' in 'cat' }} {{ 'z' not in 'cat' }} {{ 1 in [1] }} {{ 'k' in {'k': 1} }} {{ 'role' in user }} {{ not 1 in [2] }}
{{ not true or true and not false }} {{ 0 or 'x' }} {{ 1 and 'y' }} {{ '' or none }}
{{ text[0] }}|{{ text[-1] }}|{{ text[1:3] }}|{{ text[::-1] }}|{{ text[-3:] }}|{{ text[:100] }}|{{ text[5:1] }}|{{ text[5:1:-2] }}
{{ items[1:] }} {{ items[::2] }} {{ items[-1] }} {{ items[9] is defined }} {{ items[:-1] | length }} {{ items.0 }}
{{ user.role }} {{ user['content'] }} {{ user.missing }} {{ user.get('x', 'no') }} {{ user.get('x') }} {{ user.name is defined }}
{% for k, v in user.items() %}{{ k }}={{ v }};{% endfor %} {{ user.keys() | list }} {{ user.values() | join('+') }}
{% for k, v in user | items %}{{ k }}:{{ v }} {% endfor %}{% for c in 'a\u00e9z' %}[{{ c }}]{% endfor %}{% for k in user %}{{ k }}{% endfor %}
{% for x in items %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }} {% endfor %}
{% for x in items if x is string %}{{ loop.index0 }}{{ x }}{% else %}none{% endfor %}{% for x in [] %}{{ x }}{% else %}nothing{% endfor %}
{% for x in items %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem is defined }}{% if not loop.last %},{% endif %}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% set a = 1 %}{% for x in [1, 2] %}{% set a = a + x %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 9 %}{% endif %}{{ a }}
{% set ns = namespace(n=0, s='') %}{% for x in [1, 2, 3] %}{% set ns.n = ns.n + x %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }} {{ ns.s }}
{% set x %}  body {{ 1 + 1 }} {% endset %}[{{ x }}]{% set y | trim | upper %}  body {% endset %}[{{ y }}]{% set p, q = 1, 2 %}{{ q }}{{ p }}
{% macro m(a, b='B', c=none) %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=2, a=1) }}{{ m() }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}{% set z = f(1) %}{{ z | length }}
{{ '  x y '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.rstrip('ab') }}|{{ 'a\nb\n'.strip('\n') }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a</think>b'.split('</think>')[-1] }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a  b c '.split(none, 1) }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'Hello wORLD it\'s'.title() }} {{ 'aB\u00e9'.upper() }} {{ '\u00c9B'.lower() }} {{ 'hELLO'.capitalize() }}
{{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ 'hello'.find('l') }} {{ 'hello'.find('z') }} {{ 'banana'.count('an') }} {{ '-'.join(['a', 'b']) }}
{{ ' x ' | trim }}|{{ 'abc' | length }}|{{ 'a\u00e9' | count }}|{{ 'xAx' | lower | upper }}|{{ 'ab cd' | title }}|{{ 'aB' | capitalize }}|{{ 'xax' | trim('x') }}
{{ items | first }} {{ items | last }} {{ 'abc' | list }} {{ 'a-b' | replace('-', '+') }} {{ [3, 1] | reverse | list }} {{ [1, 1, 2] | unique | list }} {{ 'abc' | reverse }}
{{ missing | default('d') }} {{ none | default('d') }} {{ '' | default('d', true) }} {{ '' | d('e', boolean=true) }} {{ missing | default }}
{{ ['a', 1, none] | join(', ') }} {{ [user, user] | join('/', attribute='role') }} {{ '5' | int + 1 }} {{ 'x' | int }} {{ ' 7.9 ' | int }} {{ 3.9 | int }} {{ '2.5' | float }} {{ 1 | string + '1' }}
{{ [user, {'role': 'x'}] | map(attribute='role') | join(' ') }} {{ ['a', 'b'] | map('upper') | list }} {{ [user] | selectattr('role', 'equalto', 'user') | list | length }}
{{ [user, {'role': 'x', 'on': true}] | selectattr('on') | list | length }} {{ [user] | rejectattr('role', '==', 'user') | list }} {{ [1, 2, 3] | select('odd') | list }} {{ [0, 1] | reject | list }} {{ items | select('string') | list }}
{{ user | tojson }} {{ [1, 2.5, true, none, 'a"\\\n\u00e9</b>'] | tojson }} {{ {} | tojson }} {{ [] | tojson }} {{ 'x' | tojson }}
{{ {'a': [1, {'b': []}], 'c': {}} | tojson(indent=2) }}
{{ items }} {{ {'a': 'it\'s', 'b': "q\"'"} }} {{ ('x',) | list }} {{ none }} {{ true }} {{ 1.0 }} {{ 1e3 if false else 0.1 }} {{ 'a\tb\\' | list }}
{{ missing is undefined }} {{ none is none }} {{ 1 is number }} {{ 'a' is string }} {{ user is mapping }} {{ items is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ items is sequence }} {{ true is boolean }} {{ 1 is integer }} {{ 1.0 is float }}
{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 1 is eq 1 }} {{ 1 is in [1] }} {{ 2 is not none and 3 is gt(2) }} {{ raise_exception is callable }} {{ user is not mapping }}
{#- a comment -#}  x  {#- another {{ one }} -#}
a {%- if true %} b {% endif -%} c {{- ' d ' -}} e
  {% if true %}
    indented
  {% endif %}
  {%+ if true %}kept{% endif %}  
  {{ 'print' }}
{% if true +%}
newline kept
{% endif %}
{% if false %}1{% elif 0 %}2{% elif 'x' %}3{% else %}4{% endif %}{% if none %}{% else %}5{% endif %}
{% raw %}{{ not }} {% run %} {# at all #}{% endraw %}|{%- raw -%}  x  {%- endraw -%}  |
{{ '\x41\u00e9\U0001F600\101\q\'' }} {{ "a\
b" }} {{ 1_000 }}
{% generation %}assistant{% endgeneration %} {{ range(3) | list }} {{ range(5, 1, -2) | list }} {{ dict(a=1).a }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\nb' | indent('> ') }}
{{ [1, [2, [3]]] }} {{ [[1, 2], [3, 4]][1][0] }} {{ {'a': {'b': 'c'}}.a.b }} {{ {'a': 1, 'a': 2} }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ +3 }} {{ - 3 | abs }}
{{ {'x': {'y': 1}}['x']['y'] }}{{ {'items': 3}['items'] }}{{ '%' }}{{ '}}' }}{{ "{%" }}
{{ missing.x }}
{{ missing + 1 }}
{{ missing() }}
{{ raise_exception('told so: ' ~ 1) }}
{{ 1 / 0 }}
{% for x in 3 %}{% endfor %}
{{ 'a' < 1 }}
{{ 1 in 'a' }}
{% if %}{% endif %}
{% for x in y %}
{{ 1 + }}
{{ 'open }}
{% unknown %}
{{ 1 | nofilter }}
{{ 1 is notest }}
{{ (1 }}
{{ {'a' 1} }}
{# open
{% set x.y = 1 %}
{% macro m(a=1, b) %}{% endmacro %}
{{ m(1 }}
{{ 'abc'.nomethod() }}
{% endif %}
{{ x y }}
{{ ] }}
""".strip("\n").split("\n")
VARIABLES = {"text": "h\u00e9llo\U0001F600!", "items": ["a", 1, "c", None], "user": {"role": "user", "content": "hi"}}


def joined(lines):
    """Puts lines that belong to one template together: those of an open block, string or indented tag."""
    out, i = [], 0
    groups = {"  {% if true %}": 3, "  {%+ if true %}kept{% endif %}  ": 2, "{% if true +%}": 3}
    while i < len(lines):
        count = groups.get(lines[i], 2 if lines[i].endswith("\\") else 1)
        out.append("\n".join(lines[i:i + count]) + ("\n" if count > 1 else ""))
        i += count
    return out


def render(template, **variables):
    try:
        return {"text": _compile_jinja_template(template).render(**variables)}
    except (jinja2.exceptions.TemplateError, TypeError, ZeroDivisionError, AttributeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    folder = pathlib.Path(sys.argv[1])
    rows = []
    for path in sorted(folder.glob("*.jinja")):
        for name, chat in CHATS.items():
            for prompt in (False, True):
                for flags in ([{}, {"enable_thinking": False}] if path.stem == "qwen3" else [{}]):
                    result = render(path.read_text(), messages=chat, tools=None, documents=None, bos_token="<s>",
                                    eos_token="</s>", add_generation_prompt=prompt, **flags)
                    rows.append({"file": path.name, "chat": name, "messages": chat, "prompt": prompt, "flags": flags, **result})
    snippets = [{"template": t, **render(t, **VARIABLES)} for t in joined(SNIPPETS)]
    made = f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}"
    parts = [json.dumps({"made_with": made})[1:-1]] + [f'"{key}": [\n' + ",\n".join(map(json.dumps, value)) + "\n]"
                                                         for key, value in (("chats", rows), ("snippets", snippets))]
    (folder / "cases.json").write_text("{" + ",\n".join(parts) + "}\n")
    print(len(rows), "chats,", len(snippets), "snippets,", sum("error" in s for s in snippets), "with errors")


main()
