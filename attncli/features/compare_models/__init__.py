"""What differs between two forms of one model: quantised, fine-tuned, with an adapter."""
