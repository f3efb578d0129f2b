"""How models of today write a chat: which marks stand around which role, what is trimmed, merged or
refused.

The formats are facts that the models' developers publish; the templates below say them in Jinja of
our own, each with another part of the language (namespaces, macros, loop variables, slices,
filters, tests, the generation tag).
"""

from __future__ import annotations

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEMPLATES: dict[str, str] = {
    "chatml": CHATML,
    "yi-1.5": (
        "{% set rest = messages %}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set rest = messages[1:] %}"
        "{% endif %}{% for m in rest %}{% if m.role == 'user' %}<|im_start|>user\n{{ m.content }}<|im_end|>\n<|im_start|>assistant\n"
        "{% else %}{{ m.content ~ '<|im_end|>' }}\n{% endif %}{% endfor %}"
    ),
    "qwen2.5": (
        "{%- if messages[0]['role'] != 'system' %}\n{{- '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}\n{%- endif %}\n"
        "{%- if tools %}\n{{- '<|im_start|>system\\n# Tools\\n<tools>' }}\n{%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}"
        "{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}\n{%- endif %}\n{%- for m in messages %}\n"
        "{{- '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
    ),
    "qwen3": (
        "{%- set ns = namespace(last=messages|length - 1) %}{%- for m in messages[::-1] %}{%- set at = (messages|length - 1) - loop.index0 %}"
        "{%- if ns.last == messages|length - 1 and m.role == 'user' %}{%- set ns.last = at %}{%- endif %}{%- endfor %}"
        "{%- for m in messages %}{%- set said = m.content if m.content is string else '' %}"
        "{%- if m.role == 'assistant' and '</think>' in said %}{%- set said = said.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
        "{{- '<|im_start|>' + m.role + '\\n' + said + '<|im_end|>\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is defined and enable_thinking is false %}"
        "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
    ),
    "llama-2": (
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set said = messages[0]['content'] %}{% else %}"
        "{% set rest = messages %}{% set said = false %}{% endif %}{% for m in rest %}"
        "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
        "{% if loop.index0 == 0 and said != false %}{% set content = '<<SYS>>\\n' + said + '\\n<</SYS>>\\n\\n' + m['content'] %}"
        "{% else %}{% set content = m['content'] %}{% endif %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif m['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "llama-3": (
        "{% set rest = messages %}{% for m in rest %}{% set content = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'"
        "+ m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
    ),
    "llama-3.1": (
        "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = '26 Jul 2024' %}\n{%- endif %}\n"
        "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content']|trim %}{%- set messages = messages[1:] %}"
        "{%- else %}{%- set system = '' %}{%- endif %}\n{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}\n"
        "{{- 'Today Date: ' + date_string + '\\n\\n' }}\n{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}"
        "{%- endfor %}{%- endif %}\n{{- system }}\n{{- '<|eot_id|>' }}\n{%- for m in messages %}{%- if not (m.role == 'ipython' or 'tool_calls' in m) %}"
        "{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}\n"
    ),
    "mistral-v0.1": (
        "{{ bos_token }}{% set merged = '' %}{% for m in messages %}{% if m['role'] in ('user', 'system') %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
        "{% elif m['role'] == 'assistant' %}{{ m['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('Only user and assistant roles') }}"
        "{% endif %}{% endfor %}"
    ),
    "mistral-v0.3": (
        "{%- if messages[0].role == 'system' %}{%- set system = messages[0].content %}{%- set rest = messages[1:] %}{%- else %}"
        "{%- set rest = messages %}{%- endif %}{{- bos_token }}{%- for m in rest %}{%- if m.role == 'user' %}"
        "{%- if tools is not none and loop.last %}{{- '[AVAILABLE_TOOLS] ' ~ (tools | tojson) ~ '[/AVAILABLE_TOOLS]' }}{%- endif %}"
        "{%- if loop.last and system is defined %}{{- '[INST] ' + system + '\\n\\n' + m.content + '[/INST]' }}{%- else %}"
        "{{- '[INST] ' + m.content + '[/INST]' }}{%- endif %}{%- elif m.role == 'assistant' %}{{- ' ' + m.content|trim + eos_token }}{%- endif %}{%- endfor %}"
    ),
    "mistral-small-3": (
        "{%- set today = strftime_now('%Y-%m-%d') %}{{- bos_token }}{%- if messages[0]['role'] == 'system' %}"
        "{%- if messages[0]['content'] is string %}{%- set said = messages[0]['content'] %}{%- else %}{%- set said = messages[0]['content'][0]['text'] %}"
        "{%- endif %}{%- set rest = messages[1:] %}{%- else %}{%- set said = 'Today is ' + today %}{%- set rest = messages %}{%- endif %}"
        "{{- '[SYSTEM_PROMPT]' + said + '[/SYSTEM_PROMPT]' }}{%- for m in rest %}{%- if m['role'] == 'user' %}{%- if m['content'] is string %}"
        "{{- '[INST]' + m['content'] + '[/INST]' }}{%- else %}{{- '[INST]' }}{%- for block in m['content'] %}{%- if block['type'] == 'text' %}"
        "{{- block['text'] }}{%- endif %}{%- endfor %}{{- '[/INST]' }}{%- endif %}{%- else %}{{- m['content'] + eos_token }}{%- endif %}{%- endfor %}"
    ),
    "gemma-2": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for m in messages %}"
        "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
        "{% if (m['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = m['role'] %}{% endif %}"
        "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"
    ),
    "gemma-3": (
        "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set prefix = messages[0]['content'] + '\\n\\n' -%}"
        "{%- set rest = messages[1:] -%}{%- else -%}{%- set prefix = '' -%}{%- set rest = messages -%}{%- endif -%}{%- for m in rest -%}"
        "{%- set role = 'model' if m['role'] == 'assistant' else m['role'] -%}"
        "{{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else '') }}{%- if m['content'] is string -%}{{ m['content'] | trim }}"
        "{%- elif m['content'] is iterable -%}{%- for item in m['content'] -%}{%- if item['type'] == 'text' -%}{{ item['text'] | trim }}"
        "{%- endif -%}{%- endfor -%}{%- endif -%}{{ '<end_of_turn>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{'<start_of_turn>model\\n'}}{%- endif -%}"
    ),
    "phi-3": (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{'<|system|>\\n' + m['content'] + '<|end|>\\n'}}{% elif m['role'] == 'user' %}"
        "{{'<|user|>\\n' + m['content'] + '<|end|>\\n'}}{% elif m['role'] == 'assistant' %}{{'<|assistant|>\\n' + m['content'] + '<|end|>\\n'}}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"
    ),
    "phi-4": (
        "{% for m in messages %}{% if (m['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + m['content'] + '<|im_end|>'}}"
        "{% elif (m['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + m['content'] + '<|im_end|>'}}{% elif (m['role'] == 'assistant') %}"
        "{{'<|im_start|>assistant<|im_sep|>' + m['content'] + '<|im_end|>'}}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"
    ),
    "phi-4-mini": (
        "{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none %}"
        "{{ '<|' + m['role'] + '|>' + m['content'] + '<|tool|>' + m['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}"
        "{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"
    ),
    "zephyr": (
        "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\n' + m['content'] + eos_token }}\n"
        "{% elif m['role'] == 'system' %}\n{{ '<|system|>\n' + m['content'] + eos_token }}\n{% elif m['role'] == 'assistant' %}\n"
        "{{ '<|assistant|>\n'  + m['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
    ),
    "vicuna": (
        "{% macro turn(who, what) %}{{ who }}: {{ what }}{% endmacro %}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }} "
        "{% elif m.role == 'user' %}{{ turn('USER', m.content) }} {% else %}{{ turn('ASSISTANT', m.content) ~ eos_token }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    ),
    "alpaca": (
        "{% for m in messages %}{% if m['role'] == 'user' %}{{ '### Instruction:\\n' ~ m['content']|trim ~ '\\n\\n' }}"
        "{% elif m['role'] == 'assistant' %}{{ '### Response:\\n' ~ m['content']|trim ~ '\\n\\n' }}{% else %}{{ m['content']|trim ~ '\\n\\n' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}"
    ),
    "deepseek-v2": (
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for m in messages %}"
        "{% if m['role'] == 'user' %}{{ 'User: ' + m['content'] + '\\n\\n' }}{% elif m['role'] == 'assistant' %}{{ 'Assistant: ' + m['content'] + eos_token }}"
        "{% elif m['role'] == 'system' %}{{ m['content'] + '\\n\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
    ),
    "deepseek-r1": (
        "{% set ns = namespace(system='') %}{%- for m in messages %}{%- if m['role'] == 'system' %}{% set ns.system = m['content'] %}{%- endif %}{%- endfor %}"
        "{{bos_token}}{{ns.system}}{%- for m in messages %}{%- if m['role'] == 'user' %}{{'<｜User｜>' + m['content']}}{%- endif %}"
        "{%- if m['role'] == 'assistant' and m['content'] is not none %}{% set content = m['content'] %}{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}"
        "{% if add_generation_prompt %}{{'<｜Assistant｜><think>\\n'}}{% endif %}"
    ),
    "command-r": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set said = messages[0]['content'] %}{% else %}"
        "{% set rest = messages %}{% set said = false %}{% endif %}{% if said != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + said + '<|END_OF_TURN_TOKEN|>' }}"
        "{% endif %}{% for m in rest %}{% set content = m['content'] %}{{ '<|START_OF_TURN_TOKEN|>' }}{% if m['role'] == 'user' %}{{ '<|USER_TOKEN|>' }}"
        "{% else %}{{ '<|CHATBOT_TOKEN|>' }}{% endif %}{{ content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"
    ),
    "olmo-2": (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ '<|system|>\n' + m['content'] + '\n' }}{% elif m['role'] == 'user' %}"
        "{{ '<|user|>\n' + m['content'] + '\n' }}{% elif m['role'] == 'assistant' %}{% if not loop.last %}{{ '<|assistant|>\n'  + m['content'] + eos_token + '\n' }}"
        "{% else %}{{ '<|assistant|>\n'  + m['content'] + eos_token }}{% endif %}{% endif %}"
        "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
    ),
    "granite-3": (
        "{%- for m in messages %}{%- if m.role in ['system', 'user'] %}{{- '<|start_of_role|>' ~ m.role ~ '<|end_of_role|>' ~ m.content ~ '<|end_of_text|>\\n' }}"
        "{%- elif m.role == 'assistant' %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- generation %}{{- m.content ~ '<|end_of_text|>' }}{%- endgeneration %}{{- '\\n' }}"
        "{%- endif %}{%- if loop.last and add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}{%- endfor %}"
    ),
    "glm-4": (
        "[gMASK]<sop>{% for item in messages %}{% if item['tools'] is defined %}<|system|>\n{{ item['tools'] | tojson }}{% endif %}"
        "{% if item['content'] %}<|{{ item['role'] }}|>{{ item['metadata'] }}\n{{ item['content'] }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "smollm2": (
        "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "falcon-3": (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{% if not loop.last %}{{ '<|assistant|>\n' + m['content'] + eos_token + '\n' }}{% else %}"
        "{{ '<|assistant|>\n' + m['content'] + eos_token }}{% endif %}{% else %}{{ '<|%s|>\n' | replace('%s', m['role']) + m['content'] + '\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    ),
    "internlm-2": (
        "{{ bos_token }}{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "openchat-3.5": (
        "{{ bos_token }}{% for m in messages %}{{ 'GPT4 Correct ' + m['role'].title() + ': ' + m['content'] + '<|end_of_turn|>'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}"
    ),
    "nemotron-mini": (
        "{{'<extra_id_0>System'}}{% for m in messages %}{% if m['role'] == 'system' %}{{'\n' + m['content'].strip()}}{% endif %}{% endfor %}{{ '\n\n' }}"
        "{%- for m in messages | rejectattr('role', 'equalto', 'system') | list %}{%- if m.role == 'user' %}{{ '<extra_id_1>User\n' ~ m.content.strip() ~ '\n' }}"
        "{%- else %}{{ '<extra_id_1>Assistant\n' ~ m.content.strip() ~ '\n' }}{%- endif %}{%- endfor %}{% if add_generation_prompt %}{{ '<extra_id_1>Assistant\n' }}{% endif %}"
    ),
    "exaone-3.5": (
        "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}{{ '[|system|][|endofturn|]\n' }}{% endif %}"
        "{{ '[|' + m['role'] + '|]' + m['content'] }}{% if m['role'] == 'user' %}{{ '\n' }}{% else %}{{ '[|endofturn|]\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '[|assistant|]' }}{% endif %}"
    ),
    "gpt-oss": (
        "{%- macro head(role) -%}<|start|>{{ role }}{%- endmacro -%}{{- head('system') }}<|message|>Reasoning: low<|end|>"
        "{%- for m in messages -%}{%- if m.role in ['system', 'developer'] -%}{{- head('developer') }}<|message|># Instructions\n\n{{ m.content }}<|end|>"
        "{%- elif m.role == 'user' -%}{{- head('user') }}<|message|>{{ m.content }}<|end|>"
        "{%- else -%}{%- if m.thinking is defined and loop.last -%}{{- head('assistant') }}<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{%- endif -%}"
        "{{- head('assistant') }}<|channel|>final<|message|>{{ m.content }}{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
        "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"
    ),
}  # fmt: skip
CONTROL = (
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<start_of_turn>", "<end_of_turn>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<｜User｜>", "<｜Assistant｜>",
    "<｜end▁of▁sentence｜>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>",
    "<|SYSTEM_TOKEN|>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "[gMASK]", "<sop>", "<|end_of_turn|>",
    "<extra_id_0>", "<extra_id_1>", "[|endofturn|]", "<|start|>", "<|message|>", "<|channel|>", "<|return|>", "[INST]",
    "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
)  # fmt: skip
"""What these models have as tokens of their own."""
