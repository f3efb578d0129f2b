"""Where text and numbers come from: texts, tokenizers, seeded numbers, tensor files. No model families."""
