"""How a run is walked through: `attn explore`, the full-screen application.

`state` is a value that keys turn into the next one, `walk` what takes time, in a thread of its own;
`explorer` is Textual's side, the other files draw. It may call any feature.
"""
