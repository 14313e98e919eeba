"""The card of a run: claims, drafts of evidence, and what each is decided by."""
