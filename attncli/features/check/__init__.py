"""`attn check`: the worksheet of the lessons, and answers to it marked."""
