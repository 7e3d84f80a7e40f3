"""Checkpoints of others: exports to Hugging Face and DCP, imports from them and from torch.save."""
