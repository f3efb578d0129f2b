"""`attn explain`: one query derived step by step, and topics such as softmax by hand."""
